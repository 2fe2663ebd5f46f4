// SPDX-License-Identifier: MIT OR Apache-2.0
//! On-demand domains: one request to the directory for any number of clients, and no unnecessary request. If the
//! directory is away, known entries are still served.

use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, c_program,
    run, wait_for, wait_until,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Searches for other reasons meanwhile: a backend now and then checks that the server is still there.
const SEARCHES_BESIDES: u64 = 1;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

fn served() -> Slapd {
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(1000, 600, 5))
}

fn on_demand<'a, S: DirectoryServer>(name: &'a str, server: &S) -> (&'a str, DomainTable) {
    (name, DomainTable::ldap(name, server).with("mode", "\"on-demand\""))
}

/// A daemon that is ready for requests.
fn asking(domains: &[(&str, DomainTable)]) -> Rosterd {
    let (names, domains): (Vec<_>, Vec<_>) = domains.iter().cloned().unzip();
    let rosterd = Rosterd::start(&domains);
    rosterd.wait_for_snapshot();
    for name in names {
        rosterd.expect_domain_status(name, "online", true);
    }
    rosterd
}

/// Results of many processes that look up at once.
#[derive(Debug)]
struct Crowd {
    found: u32,
    absent: u32,
    failed: u32,
}

fn crowd(rosterd: &Rosterd, count: u32, pattern: &str) -> Crowd {
    let mut command = rosterd.host().command(c_program("parallel_lookups"));
    let said = run(command.args([&count.to_string(), "50000", pattern])).text();
    let words: Vec<_> = said.split(' ').collect();
    let numbers: HashMap<_, u32> =
        words.chunks_exact(2).map(|pair| (pair[0], pair[1].parse().expect("a number"))).collect();
    let crowd =
        Crowd { found: numbers["found"], absent: numbers["absent"], failed: numbers["failed"] };
    println!("{pattern}: {crowd:?}");
    crowd
}

/// Searches at the server while `act` runs.
fn searches(slapd: &Slapd, act: impl FnOnce()) -> u64 {
    let before = slapd.searches();
    act();
    slapd.searches() - before
}

#[test]
fn five_hundred_who_ask_for_the_same_user_make_one_search() {
    let slapd = served();
    let rosterd = asking(&[on_demand("corp", &slapd)]);
    let made = searches(&slapd, || {
        let crowd = crowd(&rosterd, 500, "u17");
        assert_eq!((crowd.found, crowd.absent, crowd.failed), (500, 0, 0));
    });
    assert!((1..=1 + SEARCHES_BESIDES).contains(&made), "{made} searches");
    // Known now, and in the snapshot soon: no client sends a request.
    let made = searches(&slapd, || {
        assert_eq!(crowd(&rosterd, 500, "u17").found, 500);
    });
    assert!(made <= SEARCHES_BESIDES, "{made} searches");
    // A missing user: requested once, and cached as missing for a while.
    let made = searches(&slapd, || {
        let crowd = crowd(&rosterd, 500, "missing");
        assert_eq!((crowd.found, crowd.absent, crowd.failed), (0, 500, 0));
    });
    assert!((1..=1 + SEARCHES_BESIDES).contains(&made), "{made} searches");
    let made = searches(&slapd, || {
        assert_eq!(crowd(&rosterd, 100, "missing").absent, 100);
    });
    assert!(made <= SEARCHES_BESIDES, "{made} searches");
}

/// Commands about one name: a rejected entry is found with its reason, and an unknown name is an error.
#[test]
fn cache_commands_find_rejected_and_unknown_names() {
    let directory = directory();
    let comma = directory.user("comma", 20_001).replace("uid=comma,", "uid=doe\\, jane,");
    let comma = comma.replace("uid: comma\n", "uid: doe, jane\n");
    let homeless = directory.user("homeless", 20_002);
    let homeless = homeless.replace("homeDirectory: /home/homeless\n", "homeDirectory:\n");
    assert!(comma.contains("uid: doe, jane\n") && homeless.contains("homeDirectory:\n"));
    let ldif = format!("{}{comma}{homeless}", directory.populated(10, 10, 2));
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif);
    let mirror = DomainTable::ldap("mirror", &slapd);
    for (name, domain) in [on_demand("corp", &slapd), ("mirror", mirror)] {
        let rosterd = asking(&[(name, domain)]);
        for user in ["doe, jane", "homeless"] {
            rosterd.expect("passwd", user, None);
            let shown = wait_for(SOON, || {
                let shown = rosterd.roster(&["cache", "show", "user", user]);
                if shown.code == 0 { Ok(shown.text()) } else { Err(shown.error()) }
            });
            let dn = format!("uid={}", if user == "homeless" { user } else { "doe" });
            assert!(shown.contains(": not served: ") && !shown.contains("served\n"), "{shown}");
            assert!(
                shown.contains(&format!(" of {name}: ")) && shown.contains("[RST-5"),
                "{shown}"
            );
            assert!(user == "doe, jane" || shown.contains(&dn), "{shown}");
        }
        for (option, kind) in [("--user", "user"), ("--group", "group")] {
            let expired = rosterd.roster(&["cache", "expire", option, "nosuch"]);
            let text = format!("no domain has a {kind} named \"nosuch\"");
            assert_eq!(expired.code, 1, "{}", expired.error());
            assert!(expired.error().contains(&text), "{}", expired.error());
        }
        let known = wait_for(SOON, || {
            let known = rosterd.roster(&["cache", "expire", "--user", "u1"]);
            if known.code == 0 { Ok(known.text()) } else { Err(known.error()) }
        });
        assert_eq!(known, "1 name expired in 1 domain");
    }
}

#[test]
fn fifty_different_questions_are_each_asked_once() {
    let slapd = served();
    let rosterd = asking(&[on_demand("corp", &slapd)]);
    let made = searches(&slapd, || {
        let crowd = crowd(&rosterd, 50, "u2%02d");
        assert_eq!((crowd.found, crowd.failed), (50, 0));
    });
    assert!((50..=50 + SEARCHES_BESIDES).contains(&made), "{made} searches");
}

#[test]
fn the_groups_of_a_user_take_a_few_searches_however_many_there_are() {
    let slapd = served();
    let rosterd = asking(&[on_demand("corp", &slapd)]);
    let program = "import os; print(len(os.getgrouplist('big', 99999)))";
    let made = searches(&slapd, || {
        let done = rosterd.host().run("python3", &["-c", program]);
        // 500 groups, and the primary one.
        assert_eq!(done.text(), "501");
    });
    // The user, the groups, and by the hundred whether others list these.
    assert!(made <= 3 + 5 + SEARCHES_BESIDES, "{made} searches");
    let made = searches(&slapd, || {
        assert_eq!(rosterd.host().run("python3", &["-c", program]).text(), "501");
    });
    assert!(made <= SEARCHES_BESIDES, "{made} searches");
    // The reply to a request for a group has all its members.
    let wanted = slapd.search(slapd.base(), "(cn=g7)", &["memberUid"]);
    let wanted = String::from_utf8(wanted).expect("ASCII");
    let mut wanted: Vec<_> = wanted.lines().filter_map(|l| l.strip_prefix("memberUid: ")).collect();
    wanted.sort_unstable();
    let group = rosterd.getent("group", "g7").expect("there");
    let mut found: Vec<_> = group.rsplit(':').next().unwrap_or_default().split(',').collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
}

/// `id` requests the user, the groups, and then each group. The members were not requested before.
#[test]
fn on_demand_user_many_groups_needs_few_searches() {
    let ldif = directory().populated(2000, 600, 500);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &ldif);
    let rosterd = asking(&[on_demand("corp", &slapd)]);
    let made = searches(&slapd, || {
        let done = rosterd.host().run("id", &["big"]);
        assert_eq!(
            done.text().split("groups=").nth(1).map(|all| all.split(',').count()),
            Some(501)
        );
    });
    // Groups by the dozen, and each of 2,000 members once.
    assert!(made <= 60, "{made} searches");
}

/// Does the lookups of `id` for a user, and lists each group's members with it, as one line a group.
const GROUPS_WITH_MEMBERS: &str = "\
import grp, os, pwd, sys
name = sys.argv[1]
gid = pwd.getpwnam(name).pw_gid
for group in map(grp.getgrgid, os.getgrouplist(name, gid)):
    print(group.gr_name, *sorted(group.gr_mem))
";

/// A directory of groups that share their users, and the members of each, including those of nested groups.
fn members_of(
    directory: &LdifBuilder,
    schema: Schema,
) -> (String, BTreeMap<String, BTreeSet<String>>) {
    const USERS: usize = 300;
    let mut ldif = directory.tree();
    for user in 0..USERS {
        ldif += &directory.user_in(&format!("u{user}"), 100_000 + user as u32, 200_000);
    }
    let mut groups = BTreeMap::from([("primary".to_owned(), BTreeSet::new())]);
    ldif += &directory.group::<&str>("primary", 200_000, &[]);
    for group in 0..60_usize {
        let members = (0..40).map(|k| format!("u{}", (group * 7 + k * 7) % USERS));
        let members: BTreeSet<String> = members.collect();
        let mut listed: Vec<String> = members.iter().cloned().collect();
        // A member that does not exist does not affect the others.
        listed.push("nobody-knows".to_owned());
        let name = format!("g{group}");
        ldif += &directory.group(&name, 200_001 + group as u32, &listed);
        groups.insert(name, members);
    }
    if schema == Schema::Rfc2307bis {
        for outer in 0..20_usize {
            let [first, second] = [outer * 3, outer * 3 + 1].map(|group| format!("g{group}"));
            let (name, around) = (format!("outer{outer}"), format!("outer{}", (outer + 1) % 20));
            // All of them in a circle, so each has all members of all.
            let within = [first.as_str(), &second, &around];
            ldif += &directory.group_of_groups::<&str>(&name, 201_000 + outer as u32, &[], &within);
            groups.insert(name, BTreeSet::new());
        }
        let numbers = (0..20).flat_map(|outer| [outer * 3, outer * 3 + 1]);
        let all: BTreeSet<String> =
            numbers.flat_map(|group| groups[&format!("g{group}")].clone()).collect();
        for outer in 0..20 {
            groups.insert(format!("outer{outer}"), all.clone());
        }
    }
    (ldif, groups)
}

/// From nothing, programs list users and their groups at the same time: each group has all its
/// members in every answer.
fn groups_are_whole_from_the_first_answer(schema: Schema) {
    let (ldif, groups) = members_of(&LdifBuilder::new(schema), schema);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    for programs in [1, 8, 1, 8] {
        let rosterd = asking(&[on_demand("corp", &slapd)]);
        let list = |user: usize| {
            let mut command = rosterd.host().command("python3");
            run(command.args(["-c", GROUPS_WITH_MEMBERS, &format!("u{}", user * 7)]))
        };
        let said = std::thread::scope(|scope| {
            let programs: Vec<_> =
                (0..programs).map(|user| scope.spawn(move || list(user))).collect();
            programs
                .into_iter()
                .map(|program| program.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        for (user, said) in said.iter().enumerate() {
            assert_eq!(said.code, 0, "{}", said.error());
            let name = format!("u{}", user * 7);
            let is_in = |(group, members): &(&String, &BTreeSet<String>)| {
                *group == "primary" || members.contains(&name)
            };
            let wanted: BTreeMap<_, _> = groups.iter().filter(is_in).collect();
            let text = said.text();
            let lists = text.lines().map(|line| {
                let mut words = line.split(' ').map(str::to_owned);
                (words.next().expect("a name"), words.collect::<BTreeSet<String>>())
            });
            let lists: BTreeMap<String, BTreeSet<String>> = lists.collect();
            assert_eq!(lists.iter().collect::<BTreeMap<_, _>>(), wanted, "{name} of {programs}");
        }
    }
}

#[test]
fn groups_are_whole_from_the_first_answer_where_they_list_names() {
    groups_are_whole_from_the_first_answer(Schema::Rfc2307);
}

#[test]
fn groups_are_whole_from_the_first_answer_where_they_are_in_each_other() {
    groups_are_whole_from_the_first_answer(Schema::Rfc2307bis);
}

#[test]
fn with_the_directory_away_what_was_asked_before_is_served() {
    let mut slapd = served();
    let (name, domain) = on_demand("corp", &slapd);
    let rosterd = asking(&[(name, domain.with("refresh_interval", "\"1s\""))]);
    let user = rosterd.getent("passwd", "u5");
    assert!(user.is_some());
    assert!(rosterd.getent("group", "g5").is_some());
    wait_for(SOON, || {
        let status = rosterd.status()?;
        let count = |key: &str| status["snapshot"][key].as_u64().unwrap_or(0);
        if count("users") > 0 && count("groups") > 0 { Ok(()) } else { Err(status.to_string()) }
    });
    slapd.stop();
    rosterd.expect_domain_status("corp", "online", false);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(rosterd.getent("passwd", "u5"), user);
    assert!(rosterd.getent("group", "g5").is_some());
    // No component knows whether it exists, so the answer is not "absent".
    let crowd = crowd(&rosterd, 1, "u6");
    assert_eq!((crowd.found, crowd.absent, crowd.failed), (0, 0, 1));
    slapd.start();
    wait_until(SOON, "it is asked again", || rosterd.getent("passwd", "u6").is_some());
}

#[test]
fn what_changes_or_goes_in_the_directory_does_so_on_the_host() {
    let slapd = served();
    let (name, domain) = on_demand("corp", &slapd);
    let rosterd = asking(&[(name, domain.with("refresh_interval", "\"1s\""))]);
    let whole =
        |shell: &str| Some(format!("u5:*:100005:300005:u5 of dc=example,dc=com:/home/u5:{shell}"));
    assert_eq!(rosterd.getent("passwd", "u5"), whole("/bin/sh"));
    assert!(rosterd.getent("group", "g5").is_some());
    slapd.set(&directory().user_dn("u5"), "loginShell", &["/bin/zsh"]);
    rosterd.expect("passwd", "u5", whole("/bin/zsh").as_deref());
    // Users that joined or left a group are seen in it, also when a member's groups were requested.
    slapd.change(&directory().user("first", 70_100));
    slapd.change(&directory().user("second", 70_101));
    slapd.change(&directory().group("club", 70_200, &["first"]));
    assert_eq!(rosterd.getent("group", "club").as_deref(), Some("club:*:70200:first"));
    rosterd.expect_groups("first", 70_100, &[70_100, 70_200]);
    slapd.change(&directory().membership("club", "second", true));
    rosterd.expect("group", "club", Some("club:*:70200:first,second"));
    slapd.change(&directory().membership("club", "first", false));
    rosterd.expect("group", "club", Some("club:*:70200:second"));
    rosterd.expect_groups("first", 70_100, &[70_100]);
    slapd.delete(&[directory().user_dn("u5"), directory().group_dn("g5")]);
    rosterd.expect("passwd", "u5", None);
    rosterd.expect("passwd", "100005", None);
    rosterd.expect("group", "g5", None);
    // A user that was absent appears once the negative entry has expired.
    assert_eq!(rosterd.getent("passwd", "newcomer"), None);
    slapd.change(&directory().user("newcomer", 70_000));
    wait_until(SOON, "the newcomer is seen", || rosterd.getent("passwd", "newcomer").is_some());
}

/// Lists that have a user under the old name are requested again at once, long before they expire.
fn whoever_was_renamed_stays_in_the_groups(schema: Schema) {
    let directory = LdifBuilder::new(schema);
    let people = [
        directory.tree(),
        directory.user("alice", 70_000),
        directory.user("bob", 70_001),
        directory.group("staff", 70_100, &["alice", "bob"]),
    ];
    let slapd = Slapd::serving(SlapdOptions::new(schema), &people.concat());
    let (name, domain) = on_demand("corp", &slapd);
    let rosterd = asking(&[(name, domain.with("refresh_interval", "\"1h\""))]);
    assert_eq!(rosterd.getent("group", "staff").as_deref(), Some("staff:*:70100:alice,bob"));
    rosterd.expect_groups("alice", 70_000, &[70_000, 70_100]);
    slapd.rename(&directory.user_dn("alice"), "uid=alicia", None);
    slapd.change(&directory.membership("staff", "alicia", true));
    slapd.change(&directory.membership("staff", "alice", false));
    wait_until(SOON, "she is seen", || rosterd.getent("passwd", "alicia").is_some());
    rosterd.expect("group", "staff", Some("staff:*:70100:bob,alicia"));
    rosterd.expect_groups("alicia", 70_000, &[70_000, 70_100]);
}

#[test]
fn whoever_was_renamed_stays_in_the_groups_that_list_names() {
    whoever_was_renamed_stays_in_the_groups(Schema::Rfc2307);
}

#[test]
fn whoever_was_renamed_stays_in_the_groups_that_list_entries() {
    whoever_was_renamed_stays_in_the_groups(Schema::Rfc2307bis);
}

/// The two requests are the same except for their domain.
#[test]
fn both_domains_are_asked_and_their_order_decides() {
    let corp_dir = directory();
    let lab_dir = LdifBuilder::below_base(LAB, Schema::Rfc2307);
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    let corp = Slapd::serving(
        setup.clone(),
        &[
            corp_dir.tree(),
            corp_dir.user("alice", 5000),
            corp_dir.group("riders", 6000, &["alice"]),
        ]
        .concat(),
    );
    setup.base = LAB.to_owned();
    let lab = Slapd::serving(
        setup,
        &[
            lab_dir.tree(),
            lab_dir.user("alice", 7000),
            lab_dir.user("carla", 7001),
            lab_dir.user("toor", 0),
            lab_dir.user("root", 7002),
            lab_dir.group("wheel-lab", 8000, &["alice", "carla"]),
        ]
        .concat(),
    );
    let rosterd = asking(&[on_demand("corp", &corp), on_demand("lab", &lab)]);
    let mut at_lab = 0;
    let at_corp = searches(&corp, || {
        at_lab = searches(&lab, || assert_eq!(rosterd.getent("passwd", "nowhere"), None));
    });
    assert!(at_corp >= 1 && at_lab >= 1, "{at_corp} and {at_lab} searches");
    let alice = rosterd.getent("passwd", "alice").expect("there");
    assert!(alice.starts_with("alice:*:5000:5000:"), "{alice}");
    assert!(rosterd.getent("passwd", "carla").is_some());
    let wheel = Some("wheel-lab:*:8000:alice@lab,carla");
    assert_eq!(rosterd.getent("group", "wheel-lab").as_deref(), wheel);
    rosterd.expect_groups("alice", 5000, &[5000, 6000]);
    // The alice of lab has her name with the domain.
    let other = rosterd.getent("passwd", "7000").expect("there");
    assert!(other.starts_with("alice@lab:*:7000:"), "{other}");
    rosterd.expect_groups("alice@lab", 7000, &[7000, 8000]);
    // The border of trust is the same as for mirrored domains.
    for key in ["toor", "root", "root@lab", "0", "7002"] {
        assert_eq!(rosterd.getent("passwd", key), None, "{key}");
    }
}

const LAB: &str = "dc=lab,dc=example";

/// A directory behind which another may be.
fn serving(directory: &LdifBuilder, base: &str, entries: &[String]) -> Slapd {
    let mut setup = SlapdOptions::new(Schema::Rfc2307);
    setup.base = base.to_owned();
    Slapd::serving(setup, &[&[directory.tree()], entries].concat().concat())
}

/// The second domain in both ways.
fn in_both_modes(server: &Slapd) -> [(&'static str, DomainTable); 2] {
    [on_demand("lab", server), ("lab", DomainTable::ldap("lab", server))]
}

/// The group's line, as soon as there is one.
fn first_answer(rosterd: &Rosterd, group: &str) -> String {
    let answer = || rosterd.getent("group", group).ok_or_else(|| format!("no {group}"));
    wait_for(SOON, answer)
}

/// A program that trusts a group's members would give the rights of lab's group to corp's alice.
#[test]
fn precedence_group_lists_no_earlier_unasked_user() {
    let (corp_dir, lab_dir) = (directory(), LdifBuilder::below_base(LAB, Schema::Rfc2307));
    let corp = [corp_dir.user("alice", 5000), corp_dir.user("somebody", 7003)];
    let corp = serving(&corp_dir, "dc=example,dc=com", &corp);
    let lab = serving(
        &lab_dir,
        LAB,
        &[
            lab_dir.user("alice", 7000),
            lab_dir.user("carla", 7001),
            // The uid of corp's user `somebody`.
            lab_dir.user("dora", 7003),
            lab_dir.group("wheel-lab", 8000, &["alice", "carla", "dora"]),
        ],
    );
    for lab in in_both_modes(&lab) {
        let rosterd = asking(&[on_demand("corp", &corp), lab]);
        let wheel = "wheel-lab:*:8000:alice@lab,carla";
        assert_eq!(first_answer(&rosterd, "wheel-lab"), wheel, "from nothing");
        let made = searches(&corp, || {
            for key in ["wheel-lab", "8000"] {
                assert_eq!(rosterd.getent("group", key).as_deref(), Some(wheel));
            }
        });
        assert!(made <= 1 + SEARCHES_BESIDES, "{made} searches for what was asked before");
        for (database, key) in [("passwd", "carla"), ("group", "wheel-lab")] {
            let listed = rosterd.host().run("getent", &["-s", "roster", database]).text();
            let mut names = listed.lines().map(|line| line.split(':').next().unwrap_or_default());
            assert!(!names.any(|name| name == key), "may be corp's: {listed}");
        }
        rosterd.expect_groups("carla", 7001, &[7001, 8000]);
        rosterd.expect_groups("alice", 5000, &[5000]);
        assert!(rosterd.getent("passwd", "alice").expect("there").starts_with("alice:*:5000:"));
        assert_eq!(rosterd.getent("passwd", "dora"), None);
        assert_eq!(rosterd.getent("group", "wheel-lab").as_deref(), Some(wheel));
    }
}

#[test]
fn a_group_of_which_an_earlier_domain_cannot_be_asked_is_not_told() {
    let (corp_dir, lab_dir) = (directory(), LdifBuilder::below_base(LAB, Schema::Rfc2307));
    let corp = serving(&corp_dir, "dc=example,dc=com", &[corp_dir.user("alice", 5000)]);
    let members = [lab_dir.user("carla", 7001), lab_dir.group("team", 8000, &["carla"])];
    let lab = serving(&lab_dir, LAB, &members);
    let (name, domain) = on_demand("corp", &corp);
    let rosterd = asking(&[(name, domain.with("negative_ttl", "\"0s\"")), on_demand("lab", &lab)]);
    assert_eq!(first_answer(&rosterd, "team"), "team:*:8000:carla");
    drop(corp);
    wait_until(SOON, "nobody can tell", || rosterd.getent("group", "team").is_none());
}

/// A domain with an unreachable server does not affect a higher-priority domain.
#[test]
fn a_later_domain_that_was_never_read_denies_nobody_of_an_earlier_one() {
    let (corp_dir, lab_dir) = (directory(), LdifBuilder::below_base(LAB, Schema::Rfc2307));
    let corp = [corp_dir.user("alice", 5000), corp_dir.group("team", 6000, &["alice"])];
    let corp = serving(&corp_dir, "dc=example,dc=com", &corp);
    let lab = serving(&lab_dir, LAB, &[lab_dir.user("carla", 7001)]);
    // A port without a listener.
    let away = DomainTable::ldap_through("lab", &lab, &["ldap://127.0.0.1:9"]);
    let (name, domain) = on_demand("corp", &corp);
    let rosterd = Rosterd::start(&[domain, away]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status(name, "online", true);
    // Each of them is the first request for that entry.
    let team = rosterd.getent("group", "team");
    assert_eq!(team.as_deref(), Some("team:*:6000:alice"));
    let alice = rosterd.getent("passwd", "alice").expect("corp has her");
    assert!(alice.starts_with("alice:*:5000:"), "{alice}");
    rosterd.expect_groups("alice", 5000, &[5000, 6000]);
    assert_eq!(rosterd.getent("passwd", "carla"), None);
}

/// A client requests a group with a small buffer, and with one twice as large until it fits.
#[test]
fn on_demand_large_reply_is_built_once() {
    const MEMBERS: u32 = 1_200;
    let (corp_dir, lab_dir) = (directory(), LdifBuilder::below_base(LAB, Schema::Rfc2307));
    let names: Vec<String> = (0..MEMBERS).map(|number| format!("u{number}")).collect();
    let member = |(number, name): (u32, &String)| lab_dir.user_in(name, 100_000 + number, 99_999);
    let mut lab: Vec<String> = (0..).zip(&names).map(member).collect();
    lab.push(lab_dir.group("all-lab", 99_998, &names));
    let corp = serving(&corp_dir, "dc=example,dc=com", &[]);
    let lab = serving(&lab_dir, LAB, &lab);
    // Each reply that is built requests all members from corp.
    let (name, domain) = on_demand("corp", &corp);
    let rosterd = asking(&[
        (name, domain.with("negative_ttl", "\"0s\"")),
        ("lab", DomainTable::ldap("lab", &lab)),
    ]);
    rosterd.expect_domain_status("lab", "complete", true);
    // Twelve for names, twelve for uids, one for a gid, and before whether there is such a group; twice if a change was
    // received meanwhile.
    let made = searches(&corp, || {
        let group = first_answer(&rosterd, "all-lab");
        assert_eq!(group.split(',').count(), MEMBERS as usize);
    });
    assert!(made <= 2 * 26 + SEARCHES_BESIDES, "{made} searches");
}

#[test]
fn members_of_a_large_group_are_asked_about_by_the_hundred() {
    const MEMBERS: u32 = 2_000;
    let (corp_dir, lab_dir) = (directory(), LdifBuilder::below_base(LAB, Schema::Rfc2307));
    let name = |number: u32| format!("u{number}");
    // Every twentieth name belongs to another user in corp.
    let corp: Vec<String> =
        (0..MEMBERS / 20).map(|n| corp_dir.user_in(&name(20 * n), 20_000 + n, 19_999)).collect();
    let corp = serving(&corp_dir, "dc=example,dc=com", &corp);
    let mut lab: Vec<String> =
        (0..MEMBERS).map(|n| lab_dir.user_in(&name(n), 100_000 + n, 99_999)).collect();
    let names: Vec<String> = (0..MEMBERS).map(name).collect();
    lab.push(lab_dir.group("all-lab", 99_998, &names));
    let lab = serving(&lab_dir, LAB, &lab);
    let served = |number: u32| match number % 20 {
        0 => format!("{}@lab", name(number)),
        _ => name(number),
    };
    let mut wanted: Vec<String> = (0..MEMBERS).map(served).collect();
    wanted.sort_unstable();
    for lab in in_both_modes(&lab) {
        let rosterd = asking(&[on_demand("corp", &corp), lab]);
        let mut answer = String::new();
        let made = searches(&corp, || answer = first_answer(&rosterd, "all-lab"));
        let mut found: Vec<_> = answer.rsplit(':').next().unwrap_or_default().split(',').collect();
        found.sort_unstable();
        assert!(found == wanted, "{} members, not {}", found.len(), wanted.len());
        // Twenty for names, twenty for uids, one for a gid; twice if the reply came too late for its client.
        assert!(made <= 2 * 41 + SEARCHES_BESIDES, "{made} searches");
    }
}
