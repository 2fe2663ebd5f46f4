//! What the publisher makes of what back-ends hand over, up to the snapshot's bytes.

use super::kept::{Displaced, Remade, Unusable};
use super::learnt::Found;
use super::model::{self, NUMBERS_MAX, Refused};
use super::own::Identity;
use super::places::Places;
use super::served::{self, Counts, Section, Served};
use super::state::{Forget, State, Taken};
use crate::role::{DomainRules, Publisher};
use roster_admission::IdRanges;
use roster_admission::Locals;
use roster_bus::exchange::{
    self, COMPLETE, CURRENT, Header, NO_REFERENCE, REMOVALS_JUDGED, Records,
};
use roster_bus::interfaces::Kind as LookUp;
use roster_config::{Exceptions, Host, Mode};
use roster_snapshot::Snapshot;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An image on its way, as a back-end makes it.
pub(super) struct Image {
    header: Header,
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn full() -> Self {
        let header = Header {
            flags: COMPLETE | CURRENT | REMOVALS_JUDGED,
            epoch: 1,
            since: 0,
            sequence: 1,
            records: 0,
        };
        Self { header, bytes: Vec::new() }
    }

    pub(super) fn changes(since: u64) -> Self {
        let image = Self::full();
        Self { header: Header { since, sequence: since + 1, ..image.header }, ..image }
    }

    /// A user whose reference is its number.
    pub(super) fn user(mut self, number: u32, name: &str, uid: u32, gid: u32) -> Self {
        self.bytes.extend(Self::record(number, number, name, uid, gid));
        self.counted()
    }

    /// One who has another.
    pub(super) fn user_named_by(
        mut self,
        number: u32,
        reference: u32,
        name: &str,
        uid: u32,
    ) -> Self {
        self.bytes.extend(Self::record(number, reference, name, uid, uid));
        self.counted()
    }

    fn record(number: u32, reference: u32, name: &str, uid: u32, gid: u32) -> Vec<u8> {
        let user = exchange::User {
            number,
            reference,
            by_name: NO_REFERENCE,
            uid,
            gid,
            name: name.as_bytes(),
            gecos: b"A user",
            dir: b"/home/user",
            shell: b"/bin/sh",
        };
        let mut record = Vec::new();
        exchange::write_user(&mut record, &user).expect("fits");
        record
    }

    pub(super) fn group(mut self, number: u32, name: &str, gid: u32, members: &[u32]) -> Self {
        let written = exchange::write_group(
            &mut self.bytes,
            number,
            number,
            gid,
            name.as_bytes(),
            Some(members),
        );
        written.expect("fits");
        self.counted()
    }

    pub(super) fn gone(mut self, number: u32) -> Self {
        exchange::write_gone(&mut self.bytes, number);
        self.counted()
    }

    /// An entry that takes as much memory as a single one can: about a third of what a domain may.
    pub(super) fn far(self) -> Self {
        self.user(NUMBERS_MAX - 1, "far", 5999, 5999)
    }

    /// Fifty users who are not served, with texts that count 37 MiB.
    pub(super) fn crowd(mut self, crowd: u32) -> Self {
        let text = [b'x'; u16::MAX as usize];
        for number in 50 * crowd..50 * (crowd + 1) {
            let [name, gecos, dir, shell] = [&text; 4];
            let (reference, by_name, uid, gid) = (number, NO_REFERENCE, 6000, 6000);
            let user =
                exchange::User { number, reference, by_name, uid, gid, name, gecos, dir, shell };
            exchange::write_user(&mut self.bytes, &user).expect("fits");
            self = self.counted();
        }
        self
    }

    /// A group whose members nobody has asked for.
    pub(super) fn unasked(mut self, number: u32, name: &str, gid: u32) -> Self {
        let name = name.as_bytes();
        exchange::write_group(&mut self.bytes, number, number, gid, name, None).expect("fits");
        self.counted()
    }

    pub(super) fn groups_of(mut self, user: u32, groups: &[u32]) -> Self {
        exchange::write_groups_of(&mut self.bytes, user, groups).expect("fits");
        self.counted()
    }

    /// The records alone, as they answer a look-up.
    pub(super) fn records(self) -> Vec<u8> {
        self.bytes
    }

    /// The same as the answer to a look-up, of that state.
    pub(super) fn found(self, sequence: u64) -> Arc<Found> {
        Arc::new(Found { epoch: self.header.epoch, sequence, records: self.bytes })
    }

    /// Another state than the usual.
    pub(super) fn leads_to(self, sequence: u64) -> Self {
        Self { header: Header { sequence, ..self.header }, ..self }
    }

    /// Another process than the usual.
    pub(super) fn of_process(self, epoch: u64) -> Self {
        Self { header: Header { epoch, ..self.header }, ..self }
    }

    fn counted(mut self) -> Self {
        self.header.records += 1;
        self
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        [&self.header.to_bytes()[..], &self.bytes].concat()
    }
}

fn config(domains: &[&str]) -> Publisher {
    let mode = |name: &str| match name {
        _ if name.starts_with("asked") => Mode::OnDemand,
        _ => Mode::Replicate,
    };
    let rules = |name: &&str| DomainRules {
        name: (*name).into(),
        min_id: 1000,
        max_id: 4_000_000_000,
        mode: mode(name),
        mass_deletion: 0.5,
        negative: Duration::from_secs(10),
    };
    Publisher {
        host: Host {
            min_id: 1000,
            max_id: 4_000_000_000,
            allowed_local_gids: vec![100],
            exceptions: Exceptions::default(),
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
            subuid: "/etc/subuid".into(),
            subgid: "/etc/subgid".into(),
        },
        publisher: roster_config::Publisher { interval: Duration::ZERO },
        domains: domains.iter().map(rules).collect(),
    }
}

pub(super) fn locals(users: &[(&str, u32)], groups: &[(&str, u32)]) -> Locals {
    Locals {
        user_names: users.iter().map(|(name, _)| name.as_bytes().to_owned()).collect(),
        uids: users.iter().map(|(_, uid)| *uid).collect(),
        group_names: groups.iter().map(|(name, _)| name.as_bytes().to_owned()).collect(),
        gids: groups.iter().map(|(_, gid)| *gid).collect(),
        ..Locals::default()
    }
}

fn fresh(domains: &[&str], served: Served, previous: Option<Vec<u8>>) -> State {
    State::new(&config(domains), Path::new("/run/roster/nss"), served, previous)
}

/// Hands an image over.
pub(super) fn take(state: &mut State, domain: usize, image: Image) -> Result<Taken, Refused> {
    take_bytes(state, domain, &image.bytes())
}

fn take_bytes(state: &mut State, domain: usize, image: &[u8]) -> Result<Taken, Refused> {
    state.apply(domain, model::Image::read(image)?)
}

/// Has an image's records come as the answer to a look-up, newer than all that was fetched.
pub(super) fn learn(
    state: &mut State,
    domain: usize,
    image: Image,
) -> Result<Option<Forget>, Refused> {
    let (_, sequence) = state.position(domain);
    state.learn(domain, &image.found(sequence + 1))
}

/// A host with the accounts that every host has. A domain whose name starts with `asked` is asked on demand.
pub(super) fn host(domains: &[&str]) -> State {
    let mut state = fresh(domains, Served::new(), None);
    state.set_locals(locals(&[("root", 0), ("daemon", 1)], &[("root", 0), ("users", 100)]));
    state
}

/// Publishes into memory and puts `question` to the snapshot.
pub(super) fn published<T>(state: &mut State, question: impl FnOnce(&Snapshot<'_>) -> T) -> T {
    let made = state.begin().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    state.published(made);
    let bytes = bytes.into_inner();
    roster_snapshot_build::verify::verify(&bytes, roster_snapshot::layout::Kind::Accounts)
        .expect("sound");
    question(&Snapshot::open(&bytes).expect("a snapshot"))
}

fn uid_of(snapshot: &Snapshot<'_>, name: &str) -> Option<u32> {
    snapshot.user_by_name(name.as_bytes()).expect("undamaged").map(|user| user.uid)
}

fn members_of(snapshot: &Snapshot<'_>, name: &str) -> Option<Vec<String>> {
    let group = snapshot.group_by_name(name.as_bytes()).expect("undamaged")?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    Some(group.members.iter().map(|member| text(member.expect("undamaged"))).collect())
}

fn gids_of(snapshot: &Snapshot<'_>, name: &str) -> Vec<u32> {
    let mut gids = Vec::new();
    if let Some(list) = snapshot.supplementary(name.as_bytes()).expect("undamaged") {
        list.each(|gid| gids.push(gid)).expect("undamaged");
    }
    gids
}

fn reasons(state: &State, domain: &str) -> Vec<String> {
    let rejected = state.rejected(domain, 0, 100).expect("a domain");
    rejected
        .into_iter()
        .map(|entry| format!("{} {}: {}", entry.kind, entry.name, entry.reason))
        .collect()
}

#[test]
fn ids_that_no_directory_may_give_out_are_refused_with_the_reason() {
    for (uid, gid, reason) in [
        (0, 5000, "uid 0 is reserved"),
        (1, 5000, "uid 1 is below min_id (1000)"),
        (65_534, 5000, "uid 65534 is reserved"),
        (65_535, 5000, "uid 65535 is reserved"),
        (u32::MAX, 5000, "uid 4294967295 is reserved"),
        (4_100_000_000, 5000, "uid 4100000000 is above max_id (4000000000)"),
        (5000, 0, "primary gid 0 is reserved"),
        (5000, 42, "gid 42 is below min_id (1000)"),
    ] {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, "mallory", uid, gid).bytes();
        take_bytes(&mut state, 0, &image).expect("well formed");
        let served = published(&mut state, |snapshot| uid_of(snapshot, "mallory"));
        assert_eq!(served, None, "{uid} {gid}");
        assert_eq!(reasons(&state, "corp"), [format!("user mallory: {reason}")]);
    }
}

#[test]
fn names_that_could_be_taken_for_something_else_are_refused() {
    let long = "x".repeat(256);
    let names = [
        "",
        "a:b",
        "a\nb",
        "a\0b",
        "a/b",
        "a,b",
        ".",
        "..",
        "-a",
        "+",
        "+@all",
        "~a",
        "0",
        "1000",
        " a",
        "a ",
        "a\u{7f}",
        "a\u{85}",
        "al\u{200b}ice",
        "\u{202e}alice",
        "a\u{a0}b",
        &long,
    ];
    for name in names {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[]);
        take(&mut state, 0, image).expect("well formed");
        published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 0, "{name:?}"));
        assert_eq!(reasons(&state, "corp").len(), 2, "{name:?}");
    }
    let invalid = exchange::User {
        number: 1,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5000,
        gid: 5000,
        name: b"a\xff",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    let mut image = Image::full();
    exchange::write_user(&mut image.bytes, &invalid).expect("fits");
    let mut state = host(&["corp"]);
    take(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 0));
}

#[test]
fn names_of_real_directories_are_served() {
    for name in ["alice", "a.b-c_d", "alice@example.com", "müller", "u$", "a+b", "_"] {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, name, 5000, 5000).bytes();
        take_bytes(&mut state, 0, &image).expect("well formed");
        assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, name)), Some(5000), "{name}");
    }
}

fn sorted_reasons(state: &State) -> Vec<String> {
    let mut reasons = reasons(state, "corp");
    reasons.sort();
    reasons
}

/// A host with these exceptions and accounts of its own.
fn host_with(exceptions: Exceptions, locals: Locals) -> State {
    let mut config = config(&["corp"]);
    config.host.exceptions = exceptions;
    let mut state = State::new(&config, Path::new("/run/roster/nss"), Served::default(), None);
    state.set_locals(locals);
    state
}

#[test]
fn names_that_shells_take_apart_need_an_exception() {
    for (name, characters) in [
        ("domain users", " "),
        ("CORP\\alice", "\\"),
        ("*", "*"),
        ("x)(uid=*", ")(=*"),
        ("weird $(id)`x`", " $()`"),
        ("a$b", "$"),
        ("$", ""),
    ] {
        let served = |name_characters: &str| {
            let exceptions =
                Exceptions { name_characters: name_characters.to_owned(), ..Exceptions::default() };
            let mut state = host_with(exceptions, Locals::default());
            let image = Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[]);
            take(&mut state, 0, image).expect("well formed");
            let served = published(&mut state, |snapshot| {
                uid_of(snapshot, name).is_some() && members_of(snapshot, name).is_some()
            });
            (served, reasons(&state, "corp"))
        };
        let (is_served, rejected) = served("");
        if characters.is_empty() {
            assert!(is_served, "{name}: a '$' at the end is usual");
            continue;
        }
        assert!(!is_served && rejected.len() == 2, "{name}");
        assert!(rejected[0].contains("has characters other than letters"), "{rejected:?}");
        assert_eq!(served(characters), (true, Vec::new()), "{name}");
    }
}

#[test]
fn names_of_privileged_accounts_need_an_exception() {
    for name in ["docker", "wheel", "Admin", "LXD", "systemd-resolve", "roster-publisher", "nobody"]
    {
        let image = || Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[1]);
        let mut state = host_with(Exceptions::default(), Locals::default());
        take(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| assert_eq!(uid_of(snapshot, name), None, "{name}"));
        let reason = "the name belongs to a privileged account on many hosts";
        let expected = [format!("group {name}: {reason}"), format!("user {name}: {reason}")];
        assert_eq!(sorted_reasons(&state), expected);
        let exceptions = Exceptions { names: vec![name.to_owned()], ..Exceptions::default() };
        let mut state = host_with(exceptions, Locals::default());
        take(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(members_of(snapshot, name), Some(vec![name.to_owned()]), "{name}");
        });
    }
}

#[test]
fn gids_of_local_users_need_an_exception() {
    // bob's primary group has no line in the group file.
    let bob = || {
        let locals = locals(&[("root", 0), ("bob", 1500)], &[("root", 0)]);
        Locals { primary_gids: [0, 1500].into(), ..locals }
    };
    let image = || Image::full().user(1, "mallory", 5000, 1500).group(2, "bobsgroup", 1500, &[1]);
    let mut state = host_with(Exceptions::default(), bob());
    take(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "mallory"), None);
        assert_eq!(members_of(snapshot, "bobsgroup"), None);
    });
    assert_eq!(
        sorted_reasons(&state),
        [
            "group bobsgroup: gid 1500 is a local user's primary gid",
            "user mallory: primary gid 1500 is a local user's primary gid"
        ]
    );
    let exceptions = Exceptions { unnamed_gids: vec![1500], ..Exceptions::default() };
    let mut state = host_with(exceptions, bob());
    take(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "bobsgroup"), Some(vec!["mallory".to_owned()]));
    });
}

#[test]
fn subordinate_ids_need_an_exception() {
    let bob = || Locals {
        subuids: IdRanges::new(vec![(100_000, 165_535)]),
        subgids: IdRanges::new(vec![(200_000, 265_535)]),
        ..Locals::default()
    };
    let image = || {
        let image = Image::full().user(1, "victim", 100_500, 5000).user(2, "other", 5000, 200_000);
        image.group(3, "staff", 265_535, &[]).user(4, "beside", 165_536, 5000)
    };
    let mut state = host_with(Exceptions::default(), bob());
    take(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "beside"), Some(165_536));
        assert_eq!(snapshot.shape().users, 1);
    });
    assert_eq!(
        sorted_reasons(&state),
        [
            "group staff: gid 265535 is a subordinate id of a local user",
            "user other: primary gid 200000 is a subordinate id of a local user",
            "user victim: uid 100500 is a subordinate id of a local user"
        ]
    );
    let exceptions = Exceptions { subordinate_ids: true, ..Exceptions::default() };
    let mut state = host_with(exceptions, bob());
    take(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 3));
}

#[test]
fn gid_100_named_users_is_a_primary_gid() {
    let image = || Image::full().user(1, "alice", 5000, 100).group(2, "users", 100, &[1]);
    for (has_users_group, expected) in [(true, Some(5000)), (false, None)] {
        let locals = locals(&[("root", 0)], &[("root", 0), ("users", 100)]);
        let mut config = config(&["corp"]);
        config.host.allowed_local_gids.clear();
        let mut state = State::new(&config, Path::new("/run/roster/nss"), Served::default(), None);
        state.set_locals(Locals { has_users_group, ..locals });
        take(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(uid_of(snapshot, "alice"), expected);
            assert_eq!(members_of(snapshot, "users"), None, "the host's own group is served");
        });
    }
}

#[test]
fn a_primary_gid_below_the_smallest_id_is_served_only_where_it_was_allowed() {
    let mut state = host(&["corp"]);
    let image =
        Image::full().user(1, "a", 5001, 100).user(2, "b", 5002, 27).group(3, "users", 100, &[1]);
    take(&mut state, 0, image).expect("well formed");
    let uids = published(&mut state, |s| (uid_of(s, "a"), uid_of(s, "b"), members_of(s, "users")));
    assert_eq!(uids, (Some(5001), None, None));
    let (a, b) =
        ("user b: gid 27 is below min_id (1000)", "group users: gid 100 is below min_id (1000)");
    let mut said = reasons(&state, "corp");
    said.sort();
    assert_eq!(said, [b, a]);
}

#[test]
fn a_local_account_displaces_that_of_a_directory_and_its_memberships() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002).group(
        3,
        "staff",
        6000,
        &[1, 2],
    );
    take(&mut state, 0, image).expect("well formed");
    let staff = published(&mut state, |snapshot| members_of(snapshot, "staff"));
    assert_eq!(staff.expect("there"), ["alice", "bob"]);
    assert!(state.set_locals(locals(&[("alice", 1000), ("carol", 5002)], &[])));
    published(&mut state, |snapshot| {
        assert_eq!((uid_of(snapshot, "alice"), uid_of(snapshot, "bob")), (None, None));
        assert_eq!(members_of(snapshot, "staff"), Some(vec![]));
        assert!(gids_of(snapshot, "alice").is_empty());
    });
    assert!(state.set_locals(locals(&[("root", 0)], &[("staff", 50), ("other", 5001)])));
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff"), None);
        assert_eq!(uid_of(snapshot, "alice"), None, "her primary group is a local one");
        assert_eq!(uid_of(snapshot, "bob"), Some(5002));
    });
}

#[test]
fn of_two_domains_the_first_wins_and_the_other_is_listed() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
    let lab = Image::full()
        .user(1, "alice", 7001, 7001)
        .user(2, "bob", 5001, 7001)
        .user(3, "carol", 7003, 7001)
        .group(4, "staff", 8000, &[3])
        .group(5, "crew", 6000, &[3])
        .group(6, "lab", 8001, &[1, 3]);
    take(&mut state, 0, corp).expect("well formed");
    take(&mut state, 1, lab).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert_eq!(uid_of(snapshot, "bob"), None);
        assert_eq!(uid_of(snapshot, "carol"), Some(7003));
        assert_eq!(members_of(snapshot, "lab").expect("there"), ["carol"], "not corp's alice");
        assert_eq!(gids_of(snapshot, "alice"), [6000]);
    });
    assert_eq!(
        reasons(&state, "lab"),
        [
            "group staff: an earlier domain has this name",
            "group crew: an earlier domain has gid 6000",
            "user alice: an earlier domain has this name",
            "user bob: an earlier domain has uid 5001",
        ]
    );
}

#[test]
fn a_primary_group_of_another_domain_makes_nobody_its_member() {
    let mut state = host(&["first", "second"]);
    take(&mut state, 0, Image::full().group(1, "riders", 6000, &[])).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "mallory", 7000, 6000)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "mallory")), None);
    let reason = "user mallory: primary gid 6000 is a group of an earlier domain";
    assert_eq!(reasons(&state, "second"), [reason]);

    // Of a user and a group that would make a member of it the later one goes.
    let mut state = host(&["first", "second"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 6000)).expect("well formed");
    take(&mut state, 1, Image::full().group(1, "evil", 6000, &[])).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert_eq!(members_of(snapshot, "evil"), None);
    });
    let reason = "group evil: gid 6000 is the primary gid of an earlier domain's user";
    assert_eq!(reasons(&state, "second"), [reason]);
}

#[test]
fn a_later_domain_takes_no_user_from_an_earlier_one_by_a_group() {
    let mut state = host(&["corp", "lab"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let lab = Image::full().group(1, "evil", 5001, &[]).user(2, "alice", 9001, 7003);
    take(&mut state, 1, lab).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert!(snapshot.user_by_uid(9001).expect("undamaged").is_none());
        assert_eq!(members_of(snapshot, "evil"), None);
    });
}

#[test]
fn who_is_refused_leaves_the_name_to_nobody_of_a_later_domain() {
    let mut state = host(&["first", "corp", "lab"]);
    take(&mut state, 0, Image::full().group(1, "riders", 6000, &[])).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "alice", 5001, 6000)).expect("well formed");
    take(&mut state, 2, Image::full().user(1, "alice", 9001, 9001)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), None);
    assert_eq!(reasons(&state, "lab"), ["user alice: an earlier domain has this name"]);
}

#[test]
fn an_entry_that_is_a_user_and_the_users_own_group_is_meant_as_the_user() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    exchange::write_group(&mut image.bytes, 2, 1, 5001, b"alice", Some(&[])).expect("fits");
    take(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff").expect("there"), ["alice"]);
    });
}

#[test]
fn user_listed_twice_is_one_member() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().group(3, "staff", 6003, &[11, 1]).group(4, "all", 6004, &[3, 11]);
    let alice = exchange::User {
        number: 1,
        reference: 1,
        by_name: 11,
        uid: 5001,
        gid: 5001,
        name: b"alice",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    exchange::write_user(&mut image.bytes, &alice).expect("fits");
    take(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| {
        for group in ["staff", "all"] {
            assert_eq!(members_of(snapshot, group), Some(vec!["alice".to_owned()]), "{group}");
        }
    });
    let shown = state.show(LookUp::GroupByName, b"staff");
    assert_eq!(shown[0].related, ["alice"]);
    let shown = state.show(LookUp::UserByName, b"alice");
    assert_eq!(shown[0].related, ["staff", "all"]);
}

#[test]
fn two_users_of_one_reference_get_nothing_by_it() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    let other = exchange::User {
        number: 2,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5002,
        gid: 5002,
        name: b"mallory",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    exchange::write_user(&mut image.bytes, &other).expect("fits");
    take(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(members_of(snapshot, "staff"), Some(vec![])));
}

#[test]
fn nested_groups_are_flat_and_circles_end() {
    let mut state = host(&["corp"]);
    let image = Image::full()
        .user(1, "alice", 5001, 5001)
        .user(2, "bob", 5002, 5001)
        .group(3, "outer", 6003, &[1, 4, 4, 99])
        .group(4, "inner", 6004, &[2, 1, 3])
        .group(5, "itself", 6005, &[5, 2]);
    take(&mut state, 0, image).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "outer").expect("there"), ["alice", "bob"]);
        assert_eq!(members_of(snapshot, "inner").expect("there"), ["bob", "alice"]);
        assert_eq!(members_of(snapshot, "itself").expect("there"), ["bob"]);
        assert_eq!(gids_of(snapshot, "bob"), [6003, 6004, 6005]);
    });
}

#[test]
fn changes_lead_on_from_where_they_start_and_nowhere_else() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5001);
    take(&mut state, 0, image).expect("well formed");
    let gap = take(&mut state, 0, Image::changes(7).gone(1));
    assert_eq!(gap.err(), Some(Refused::Gap { since: 7, here: 1 }));
    let change = Image::changes(1).gone(1).user(2, "robert", 5002, 5001).bytes();
    let taken = take_bytes(&mut state, 0, &change);
    let users = ["alice", "bob", "robert"].map(|name| name.as_bytes().to_owned());
    let forget = Forget { all: false, users: users.into(), groups: vec![] };
    assert_eq!(taken, Ok(Taken::Changes(forget)));
    published(&mut state, |snapshot| {
        let uids = ["alice", "bob", "robert"].map(|name| uid_of(snapshot, name));
        assert_eq!(uids, [None, None, Some(5002)]);
    });
}

#[test]
fn a_domain_of_the_last_snapshot_is_waited_for() {
    let served = Served::from([("corp".to_owned(), Counts::default())]);
    let mut state = fresh(&["corp", "lab"], served, None);
    state.set_locals(Locals::default());
    take(&mut state, 1, Image::full()).expect("well formed");
    assert_eq!(state.waits_for().as_deref(), Some("domain corp can be read"));
    let mut nothing_yet = Image::full();
    nothing_yet.header.flags = 0;
    assert!(matches!(take(&mut state, 0, nothing_yet), Ok(Taken::NotYet(_))));
    assert_eq!(state.waits_for().as_deref(), Some("domain corp can be read"));
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    assert_eq!(state.waits_for(), None);
}

#[test]
fn a_back_end_that_was_killed_takes_nothing_back() {
    let mut state = host(&["corp"]);
    let newest = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5001);
    take(&mut state, 0, newest).expect("well formed");
    let mut stale = Image::full().user(1, "alice", 5001, 5001);
    (stale.header.flags, stale.header.epoch) = (COMPLETE, 2);
    assert!(matches!(take(&mut state, 0, stale), Ok(Taken::NotYet(_))));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "bob")), Some(5002));
    let mut caught_up = Image::full().user(1, "alice", 5001, 5001);
    caught_up.header.epoch = 2;
    let mut nothing_since = Image::changes(1);
    nothing_since.header.epoch = 2;
    let nothing_since = nothing_since.bytes();
    assert!(matches!(take(&mut state, 0, caught_up), Ok(Taken::Changes(_))));
    assert_eq!(take_bytes(&mut state, 0, &nothing_since), Ok(Taken::NothingNew));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "bob")), None);
}

#[test]
fn a_domain_that_may_be_behind_the_snapshot_is_waited_for_with_patience_only() {
    let served = Served::from([("corp".to_owned(), Counts::default())]);
    let mut state = fresh(&["corp"], served, None);
    state.set_locals(Locals::default());
    let stale = || {
        let mut stale = Image::full().user(1, "alice", 5001, 5001);
        stale.header.flags = COMPLETE;
        stale
    };
    take(&mut state, 0, stale()).expect("well formed");
    assert!(state.may_be_behind(0));
    assert_eq!(state.waits_for().as_deref(), Some("domain corp can be read"));
    let mut impatient = fresh(&["corp"], state.served.clone(), None);
    impatient.set_locals(Locals::default());
    impatient.lose_patience(0);
    assert!(impatient.waits_for().is_some(), "nothing was handed over");
    take(&mut impatient, 0, stale()).expect("well formed");
    assert_eq!(impatient.waits_for(), None);
    take(&mut state, 0, Image::changes(1)).expect("leads on");
    assert!(!state.may_be_behind(0));
    assert_eq!(state.waits_for(), None);
}

#[test]
fn a_back_end_that_lost_its_cache_takes_nothing_away() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let mut empty = Image::full();
    (empty.header.flags, empty.header.epoch) = (0, 2);
    assert!(matches!(take(&mut state, 0, empty), Ok(Taken::NotYet(_))));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), Some(5001));
}

#[test]
fn an_image_that_is_refused_changes_nothing() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let far = Image::changes(1).user(2, "bob", 5002, 5002).user(NUMBERS_MAX, "far", 5003, 5003);
    assert_eq!(take(&mut state, 0, far), Err(Refused::Number(NUMBERS_MAX)));
    let mut cut = Image::full().user(2, "bob", 5002, 5002).user(3, "carol", 5003, 5003).bytes();
    cut.truncate(cut.len() - 1);
    assert!(matches!(take_bytes(&mut state, 0, &cut), Err(Refused::Malformed(_))));
    let none = Image::full().user(NO_REFERENCE, "none", 5004, 5004);
    assert_eq!(take(&mut state, 0, none), Err(Refused::Number(NO_REFERENCE)));
    let users = state.domains[0].entries.users().map(|(number, _)| number);
    assert_eq!(users.collect::<Vec<_>>(), [1]);
}

/// Twenty users and groups, of which the first `gone` are not there, by a back-end's process.
fn twenty_without(gone: u32, epoch: u64) -> Image {
    let mut image = Image::full();
    image.header.epoch = epoch;
    (gone..20).fold(image, |image, i| {
        let image = image.user(i, &format!("u{i}"), 5000 + i, 5000);
        image.group(100 + i, &format!("g{i}"), 6000 + i, &[i])
    })
}

#[test]
fn a_back_end_that_began_anew_removes_much_only_after_a_confirmation() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    assert!(matches!(take(&mut state, 0, twenty_without(10, 2)), Ok(Taken::Changes(_))));
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 10, "half may go"));
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    for _ in 0..2 {
        assert!(matches!(take(&mut state, 0, twenty_without(11, 2)), Ok(Taken::NotYet(_))));
        assert_eq!(state.domain_counts()[0].held_removals, 22);
        published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 20));
    }
    assert_eq!(state.confirm("corp"), Some((0, 22)));
    assert_eq!(state.confirm("corp"), Some((0, 0)), "nothing waits any more");
    assert_eq!(state.confirm("lab"), None);
    assert!(matches!(take(&mut state, 0, twenty_without(20, 3)), Ok(Taken::NotYet(_))), "more");
    assert!(matches!(take(&mut state, 0, twenty_without(11, 4)), Ok(Taken::Changes(_))));
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 9));
    assert_eq!(state.domain_counts()[0].held_removals, 0);
}

/// It cannot tell a removed entry from one that its directory did not show.
#[test]
fn held_when_emptied_back_end_lacks_four() {
    for (gone, is_held) in [(3, false), (4, true)] {
        let mut state = host(&["corp"]);
        take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
        published(&mut state, |_| {});
        let mut image = twenty_without(gone, 2);
        image.header.flags &= !REMOVALS_JUDGED;
        let taken = take(&mut state, 0, image);
        assert_eq!(matches!(taken, Ok(Taken::NotYet(_))), is_held, "{gone} of 20");
    }
}

#[test]
fn others_in_their_place_are_removals_too() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    let mut others = Image::full();
    others.header.epoch = 2;
    let others = (0..30).fold(others, |image, i| image.user(i, &format!("x{i}"), 5000 + i, 5000));
    assert!(matches!(take(&mut state, 0, others), Ok(Taken::NotYet(_))));
}

#[test]
fn a_new_publisher_goes_by_the_snapshot_in_place() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    assert_eq!(served["corp"], Counts { users: 20, groups: 20 });
    let mut anew = fresh(&["corp"], served, Some(bytes));
    anew.set_locals(Locals::default());
    assert!(matches!(take(&mut anew, 0, twenty_without(11, 2)), Ok(Taken::NotYet(_))));
    anew.lose_patience(0);
    let waits_for = anew.waits_for().expect("the snapshot stays");
    assert!(waits_for.contains("roster domain confirm corp"), "{waits_for}");
    assert_eq!(anew.confirm("corp"), Some((0, 22)));
    assert!(matches!(take(&mut anew, 0, twenty_without(11, 2)), Ok(Taken::Changes(_))));
    assert_eq!(anew.waits_for(), None);
}

/// What is in place goes on being served under the host's accounts as they are now: its bytes, if that is
/// other than it was.
fn kept(state: &mut State) -> Option<(Vec<u8>, Served)> {
    kept_in_its_places(state).map(|(bytes, served, _)| (bytes, served))
}

fn kept_in_its_places(state: &mut State) -> Option<(Vec<u8>, Served, Option<Places>)> {
    let kept = state.keep(false)?;
    let (displaced, remade) = kept.make().expect("a snapshot");
    state.kept(kept.locals, Ok(displaced));
    let Remade { image, served, places, users, groups } = remade?;
    let mut bytes = Cursor::new(Vec::new());
    image.write(&mut bytes, 2).expect("write to memory");
    let bytes = bytes.into_inner();
    roster_snapshot_build::verify::verify(&bytes, roster_snapshot::layout::Kind::Accounts)
        .expect("sound");
    let shape = Snapshot::open(&bytes).expect("a snapshot").shape();
    assert_eq!((u64::from(shape.users), u64::from(shape.groups)), (users, groups));
    Some((bytes, served, places))
}

/// A snapshot in memory and what it has of each domain.
fn bytes_of(state: &State) -> (Vec<u8>, Served) {
    let made = state.begin().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    (bytes.into_inner(), made.served)
}

#[test]
fn what_is_waited_for_keeps_no_local_account_from_displacing() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
    let corp = corp.group(3, "riders", 6000, &[1, 2]).group(4, "staff", 6001, &[1]);
    take(&mut state, 0, corp).expect("well formed");
    let lab = Image::full().user(1, "carol", 7001, 7001).group(2, "guests", 8000, &[1]);
    take(&mut state, 1, lab).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let counts = |corp, lab| {
        let counts = |(users, groups)| Counts { users, groups };
        Served::from([("corp".to_owned(), counts(corp)), ("lab".to_owned(), counts(lab))])
    };
    assert_eq!(served, counts((2, 2), (1, 1)));

    let mut anew = fresh(&["corp", "lab"], served.clone(), Some(bytes));
    assert!(anew.keep(false).is_none(), "the host's accounts are not known yet");
    anew.set_locals(locals(&[("root", 0)], &[("root", 0)]));
    assert!(anew.waits_for().is_some());
    assert!(kept(&mut anew).is_none(), "nothing is displaced");
    assert!(anew.keep(false).is_none(), "it was looked at");

    anew.set_locals(locals(&[("root", 0), ("alice", 1700)], &[("root", 0), ("guests", 1701)]));
    let (bytes, left) = kept(&mut anew).expect("alice and guests are displaced");
    assert_eq!(left, counts((1, 2), (1, 0)));
    let snapshot = Snapshot::open(&bytes).expect("a snapshot");
    assert_eq!((uid_of(&snapshot, "alice"), uid_of(&snapshot, "bob")), (None, Some(5002)));
    assert_eq!(members_of(&snapshot, "riders"), Some(vec!["bob".into()]));
    assert_eq!(
        (members_of(&snapshot, "staff"), members_of(&snapshot, "guests")),
        (Some(vec![]), None)
    );
    assert_eq!(gids_of(&snapshot, "alice"), [0; 0]);
    assert_eq!(gids_of(&snapshot, "bob"), [6000]);
    assert_eq!(gids_of(&snapshot, "carol"), [0; 0]);
    assert_eq!(anew.served, served, "what removals are measured by");

    // A uid, and the gid of a primary group.
    anew.set_locals(locals(&[("root", 0), ("other", 5002)], &[("root", 0), ("other", 7001)]));
    let (bytes, left) = kept(&mut anew).expect("others are displaced, and alice is back");
    assert_eq!(left, counts((1, 2), (0, 1)));
    let snapshot = Snapshot::open(&bytes).expect("a snapshot");
    assert_eq!(members_of(&snapshot, "riders"), Some(vec!["alice".into()]));
    assert_eq!(gids_of(&snapshot, "alice"), [6000, 6001]);
    assert_eq!((uid_of(&snapshot, "bob"), uid_of(&snapshot, "carol")), (None, None));
    assert_eq!(members_of(&snapshot, "guests"), Some(vec![]));

    // The next process begins with what is in place, and has nothing to do.
    let mut third = fresh(&["corp", "lab"], left, Some(bytes));
    third.set_locals(locals(&[("root", 0), ("other", 5002)], &[("root", 0), ("other", 7001)]));
    assert!(kept(&mut third).is_none());
}

/// What a publisher that was started anew makes of what a domain had, of which it can take nothing.
pub(super) fn restored(state: &mut State, position: usize) -> Result<(), Unusable> {
    assert!(state.restoring(position).is_none(), "it may still be taken");
    state.set_not_taken(position, "it is too much");
    let restored = state.restoring(position).expect("it was served").make()?;
    state.restored(position, restored);
    Ok(())
}

/// The state's snapshot in the hands of the next process.
pub(super) fn succeeded(state: &State, domains: &[&str]) -> State {
    let (bytes, served) = bytes_of(state);
    let places = state.domains.iter().map(|domain| (domain.name.clone(), served[&domain.name]));
    let places = Places { generation: 1, domains: places.collect() };
    let mut anew = fresh(domains, served, Some(bytes));
    anew.set_places(Some(places));
    anew.set_locals(locals(&[("root", 0)], &[]));
    anew
}

#[test]
fn a_domain_that_cannot_be_taken_stays_as_it_was_and_the_others_go_on() {
    let mut state = host(&["first", "corp", "lab"]);
    // Two of one uid: the second is not served, and has the name.
    let corp = || Image::full().user(1, "alice", 5001, 5001).user(2, "zed", 5001, 5001);
    let corp = || corp().group(3, "outer", 6000, &[4]).group(4, "inner", 6001, &[1]);
    let lab = || Image::full().user(1, "carol", 7001, 7001).user(2, "dave", 7002, 7002);
    take(&mut state, 0, Image::full().user(1, "fred", 4001, 4001)).expect("well formed");
    take(&mut state, 1, corp()).expect("well formed");
    take(&mut state, 2, lab().group(3, "guests", 8000, &[1])).expect("well formed");
    let mut anew = succeeded(&state, &["first", "corp", "lab"]);
    let first = Image::full().user(1, "fred", 4001, 4001).user(2, "fiona", 4002, 4002);
    take(&mut anew, 0, first).expect("well formed");
    let newcomers = lab().user(4, "zed", 7004, 7004).user(5, "newcomer", 7005, 7005);
    let newcomers = newcomers.group(3, "guests", 8000, &[1, 2, 5]).group(6, "new", 8001, &[1]);
    take(&mut anew, 2, newcomers).expect("well formed");
    assert_eq!(anew.waits_for().as_deref(), Some("domain corp can be read"));

    restored(&mut anew, 1).expect("undamaged");
    assert_eq!(anew.waits_for(), None);
    published(&mut anew, |snapshot| {
        let uids = ["fiona", "alice", "carol", "dave", "zed", "newcomer"];
        let uids = uids.map(|name| uid_of(snapshot, name));
        assert_eq!(uids, [Some(4002), Some(5001), Some(7001), Some(7002), None, None]);
        assert_eq!(members_of(snapshot, "outer"), Some(vec!["alice".into()]));
        assert_eq!(gids_of(snapshot, "alice"), [6000, 6001]);
        let guests = Some(vec!["carol".into(), "dave".into()]);
        assert_eq!((members_of(snapshot, "guests"), members_of(snapshot, "new")), (guests, None));
    });
    let counts = anew.domain_counts();
    assert_eq!([0, 1, 2].map(|domain| &*counts[domain].new_wait_for), ["", "", "corp"]);
    let refused = |name| anew.show(LookUp::UserByName, name)[0].refused.clone();
    assert!(refused(b"newcomer").contains("corp") && refused(b"carol").is_empty());
    assert!(counts[1].present && !counts[1].not_taken.is_empty());

    // Narrowed down, it is taken in, and everybody is told whose the names are.
    anew.set_not_taken(1, "");
    assert!(matches!(take(&mut anew, 1, corp()), Ok(Taken::Changes(_))));
    published(&mut anew, |snapshot| {
        let uids = ["alice", "zed", "newcomer"].map(|name| uid_of(snapshot, name));
        assert_eq!(uids, [Some(5001), None, Some(7005)]);
    });
    assert_eq!(anew.domain_counts()[2].new_wait_for, "");
}

#[test]
fn a_domain_that_goes_first_now_is_waited_for_by_those_that_went_before_it() {
    let mut state = host(&["lab", "corp"]);
    let lab = || Image::full().user(1, "carol", 7001, 7001).user(2, "dave", 7002, 7002);
    let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "dave", 5002, 5002);
    take(&mut state, 0, lab()).expect("well formed");
    take(&mut state, 1, corp).expect("well formed");
    let mut anew = succeeded(&state, &["corp", "lab"]);
    anew.set_not_taken(0, "it is too much");
    assert!(anew.restoring(0).is_none(), "whose dave is does not follow from what was served");
    take(&mut anew, 1, lab()).expect("well formed");
    assert_eq!(anew.waits_for().as_deref(), Some("domain corp can be read"));

    // Where one comes to go before it nothing is left open.
    let mut anew = succeeded(&state, &["new", "lab", "corp"]);
    take(&mut anew, 0, Image::full().user(1, "alice", 9001, 9001)).expect("well formed");
    take(&mut anew, 1, lab()).expect("well formed");
    restored(&mut anew, 2).expect("undamaged");
    assert_eq!(anew.waits_for(), None);
    let uids = ["alice", "carol", "dave"];
    let uids = published(&mut anew, |snapshot| uids.map(|name| uid_of(snapshot, name)));
    assert_eq!(uids, [Some(9001), Some(7001), Some(7002)]);
}

#[test]
fn whose_primary_gid_changes_behind_a_restored_domain_stays() {
    let mut state = host(&["corp", "lab"]);
    // A group without its own name has the gid all the same.
    let corp = Image::full().group(1, "staff", 6000, &[]).group(2, "staff", 6001, &[]);
    take(&mut state, 0, corp.user(3, "alice", 5001, 5001)).expect("well formed");
    let lab = |carol, dave| {
        let lab = Image::full().user(1, "carol", 7001, carol).user(3, "dave", 7003, dave);
        lab.group(2, "g", 7500, &[1, 3])
    };
    take(&mut state, 1, lab(7001, 7003)).expect("well formed");
    let mut anew = succeeded(&state, &["corp", "lab"]);
    restored(&mut anew, 0).expect("undamaged");
    take(&mut anew, 1, lab(7500, 6001)).expect("well formed");
    published(&mut anew, |snapshot| {
        let gids = [&b"carol"[..], b"dave"].map(|name| {
            snapshot.user_by_name(name).expect("undamaged").map(|user| user.record().gid)
        });
        assert_eq!(gids, [Some(7500), Some(7003)], "6001 is corp's, which nobody can tell");
        let both = vec!["carol".to_owned(), "dave".to_owned()];
        assert_eq!(members_of(snapshot, "g"), Some(both));
    });
}

#[test]
fn a_restored_domain_of_which_nobody_was_served_keeps_nobody_waiting() {
    let mut state = host(&["corp", "lab"]);
    let carol = || Image::full().user(1, "carol", 7001, 7001);
    take(&mut state, 0, Image::full().user(1, "alice", 0, 5001)).expect("well formed");
    take(&mut state, 1, carol()).expect("well formed");
    let mut anew = succeeded(&state, &["corp", "lab"]);
    restored(&mut anew, 0).expect("undamaged");
    take(&mut anew, 1, carol()).expect("well formed");
    assert_eq!(anew.waits_for(), None);
    assert_eq!(published(&mut anew, |snapshot| uid_of(snapshot, "carol")), Some(7001));
}

#[test]
fn after_somebody_was_displaced_it_is_known_what_each_domain_has() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
    let carol = || Image::full().user(1, "carol", 7001, 7001);
    take(&mut state, 0, corp).expect("well formed");
    take(&mut state, 1, carol()).expect("well formed");
    // The domains lie in it as they were configured then.
    let mut anew = succeeded(&state, &["lab", "corp"]);
    let accounts = || locals(&[("root", 0), ("alice", 1700)], &[]);
    anew.set_locals(accounts());
    let (bytes, served, places) = kept_in_its_places(&mut anew).expect("alice is displaced");
    let counts = |users| Counts { users, groups: 0 };
    let wanted = [("corp".to_owned(), counts(1)), ("lab".to_owned(), counts(1))];
    assert_eq!(served, Served::from(wanted.clone()));
    let places = Places { generation: 2, ..places.expect("it was known before") };
    assert_eq!(places.domains, wanted);
    let folder = tempfile::tempdir().expect("a folder");
    places.write(folder.path()).expect("written");

    let places = Places::read(folder.path(), &bytes);
    let mut third = fresh(&["corp", "lab"], served, Some(bytes));
    third.set_places(places);
    third.set_locals(accounts());
    restored(&mut third, 0).expect("undamaged");
    take(&mut third, 1, carol()).expect("well formed");
    assert_eq!(third.waits_for(), None);
    let uids = ["alice", "bob", "carol"];
    let uids = published(&mut third, |snapshot| uids.map(|name| uid_of(snapshot, name)));
    assert_eq!(uids, [None, Some(5002), Some(7001)]);
}

#[test]
fn behind_two_restored_domains_nobody_is_served_who_is_new_behind_the_last() {
    let mut state = host(&["first", "corp", "lab"]);
    let one = |name, id| Image::full().user(1, name, id, id);
    let corp = one("alice", 5001).group(2, "riders", 6000, &[1]).group(3, "riders", 6001, &[1]);
    take(&mut state, 0, one("fred", 4001)).expect("well formed");
    take(&mut state, 1, corp.user(4, "bob", 5002, 6001)).expect("well formed");
    take(&mut state, 2, one("carol", 7001)).expect("well formed");
    let mut anew = succeeded(&state, &["first", "corp", "lab"]);
    restored(&mut anew, 0).expect("undamaged");
    restored(&mut anew, 1).expect("undamaged");
    // Bob had it, behind the first; who else has it in corp is not known.
    let lab = Image::full().user(1, "carol", 7001, 6001).user(2, "dave", 7002, 7002);
    take(&mut anew, 2, lab).expect("well formed");
    published(&mut anew, |snapshot| {
        let carol = snapshot.user_by_name(b"carol").expect("undamaged").expect("she was served");
        assert_eq!((carol.record().gid, uid_of(snapshot, "dave")), (7001, None));
        assert_eq!(uid_of(snapshot, "bob"), Some(5002));
    });
    assert_eq!(anew.domain_counts()[2].new_wait_for, "corp");
}

#[test]
fn what_was_taken_from_a_restored_domain_at_once_is_held_like_all_removals() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let mut anew = succeeded(&state, &["corp"]);
    restored(&mut anew, 0).expect("undamaged");
    published(&mut anew, |snapshot| assert_eq!(snapshot.shape().users, 20));
    anew.set_not_taken(0, "");
    assert!(matches!(take(&mut anew, 0, twenty_without(11, 2)), Ok(Taken::NotYet(_))));
    assert!(matches!(take(&mut anew, 0, twenty_without(1, 3)), Ok(Taken::Changes(_))));
}

#[test]
fn behind_a_domain_on_demand_a_snapshot_does_not_tell_what_a_domain_had() {
    let mut state = host(&["asked", "lab"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "carol", 7001, 7001)).expect("well formed");
    let mut anew = succeeded(&state, &["asked", "lab"]);
    assert_eq!(restored(&mut anew, 1), Err(Unusable::LeftOpen));
    restored(&mut anew, 0).expect("who was asked for");
    take(&mut anew, 1, Image::full().user(1, "carol", 7001, 7001)).expect("well formed");
    assert_eq!(anew.waits_for(), None);
    assert_eq!(published(&mut anew, |snapshot| uid_of(snapshot, "alice")), Some(5001));
}

#[test]
fn who_was_displaced_meanwhile_is_no_removal() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let names: Vec<_> = (10..20).map(|i| (format!("u{i}"), 1700 + i)).collect();
    let names: Vec<_> = names.iter().map(|(name, uid)| (name.as_str(), *uid)).collect();
    let accounts = || locals(&names, &[]);
    let mut anew = fresh(&["corp"], served, Some(bytes));
    anew.set_locals(accounts());
    let (bytes, served) = kept(&mut anew).expect("ten are displaced");
    assert_eq!(served["corp"], Counts { users: 10, groups: 20 });
    let mut third = fresh(&["corp"], served, Some(bytes));
    third.set_locals(accounts());
    for state in [&mut anew, &mut third] {
        assert!(matches!(take(state, 0, twenty_without(0, 2)), Ok(Taken::Changes(_))));
        assert_eq!(state.waits_for(), None);
    }
    published(&mut anew, |snapshot| assert_eq!(snapshot.shape().users, 10));
    assert!(anew.keep(false).is_none(), "there is another in place");
}

#[test]
fn removals_that_are_held_are_as_many_after_somebody_was_displaced() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let mut anew = fresh(&["corp"], served, Some(bytes));
    anew.set_locals(Locals::default());
    for (user, removals) in [("nobody", 22), ("u19", 22), ("u0", 22)] {
        anew.set_locals(locals(&[(user, 1700)], &[]));
        kept(&mut anew);
        assert!(matches!(take(&mut anew, 0, twenty_without(11, 2)), Ok(Taken::NotYet(_))));
        assert_eq!(anew.domain_counts()[0].held_removals, removals, "{user}");
    }
    assert_eq!(anew.confirm("corp"), Some((0, 22)));
    assert!(matches!(take(&mut anew, 0, twenty_without(11, 2)), Ok(Taken::Changes(_))));
    published(&mut anew, |snapshot| {
        assert_eq!((uid_of(snapshot, "u0"), uid_of(snapshot, "u19")), (None, Some(5019)));
    });
}

#[test]
fn what_a_kept_snapshot_leaves_open_stays_open() {
    let mut state = host(&["corp", "asked", "lab"]);
    let asked = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
    // Of alice the groups are known, of staff the members are not.
    let asked = asked.group(3, "riders", 6000, &[1, 2]).unasked(4, "staff", 6001);
    take(&mut state, 1, asked.groups_of(1, &[3, 4])).expect("well formed");
    let corp = Image::full().user(1, "carol", 7001, 7001).user(2, "dora", 7002, 7002);
    take(&mut state, 0, corp.group(3, "guests", 8000, &[1, 2])).expect("well formed");
    // Who comes behind a domain on demand is asked for first.
    let lab = Image::full().user(1, "erin", 9001, 9001).group(2, "late", 9500, &[1]);
    take(&mut state, 2, lab).expect("well formed");
    let (before, served) = bytes_of(&state);
    let mut anew = fresh(&["corp", "asked", "lab"], served, Some(before.clone()));
    anew.set_locals(locals(&[("dora", 1700)], &[("staff", 1701)]));
    let (bytes, _) = kept(&mut anew).expect("dora is displaced");
    let [before, after] = [&before, &bytes].map(|bytes| Snapshot::open(bytes).expect("a snapshot"));
    assert_eq!(after.responder(), Some(&b"/run/roster/nss"[..]));
    for name in ["alice", "bob", "carol", "erin"] {
        let flags = [before, after].map(|snapshot| {
            let user = snapshot.user_by_name(name.as_bytes()).expect("undamaged").expect(name);
            (user.ask_first(), user.groups_unknown())
        });
        assert_eq!(flags[0], flags[1], "{name}");
    }
    for name in ["riders", "guests", "late"] {
        let flags = [before, after].map(|snapshot| {
            let group = snapshot.group_by_name(name.as_bytes()).expect("undamaged").expect(name);
            (group.ask_first(), group.members_unknown())
        });
        assert_eq!(flags[0], flags[1], "{name}");
    }
    assert_eq!(members_of(&after, "riders"), members_of(&before, "riders"));
    assert_eq!(members_of(&after, "late"), members_of(&before, "late"));
    assert_eq!(members_of(&after, "guests"), Some(vec!["carol".into()]));
    assert_eq!(gids_of(&before, "alice"), [6000, 6001]);
    assert_eq!(gids_of(&after, "alice"), [6000], "staff is a local group");
    assert_eq!(gids_of(&after, "bob"), gids_of(&before, "bob"), "nobody asked for them");
    assert_eq!(gids_of(&after, "carol"), [8000]);
    assert_eq!(gids_of(&after, "dora"), [0; 0]);
}

#[test]
fn a_snapshot_that_cannot_be_read_is_left_as_it_is() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let mut damaged = bytes.clone();
    let at = bytes.windows(3).position(|text| text == b"u19").expect("a name");
    damaged[at] ^= 1;
    for bytes in [damaged, bytes[..bytes.len() - 1].to_vec()] {
        let mut anew = fresh(&["corp"], served.clone(), Some(bytes));
        anew.set_locals(locals(&[("u0", 1700)], &[]));
        let kept = anew.keep(false).expect("it was not looked at");
        let error = kept.make().map(|(displaced, _)| displaced).expect_err("damaged");
        assert!(matches!(error, Unusable::Damaged(_) | Unusable::Unread(_)), "{error}");
        anew.kept(kept.locals, Err(error));
        assert!(!anew.unusable().is_empty());
        assert!(anew.keep(false).is_none(), "it was looked at");
        anew.kept(Arc::default(), Ok(Displaced::default()));
        assert_eq!(anew.unusable(), "");
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_is_not_missed() {
    let served = Served::from([("corp".to_owned(), Counts { users: 20, groups: 20 })]);
    let mut state = fresh(&["corp"], served, Some(b"cut".to_vec()));
    state.set_locals(Locals::default());
    assert!(matches!(take(&mut state, 0, twenty_without(20, 2)), Ok(Taken::Changes(_))));
    assert_eq!(state.waits_for(), None);
}

#[test]
fn entries_with_the_ids_of_others_do_not_count_as_kept() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    let mut others = Image::full();
    others.header.epoch = 2;
    let others = (0..20).fold(others, |image, i| {
        let image = image.user(i, &format!("u{i}"), 7000 + i, 5000);
        image.group(100 + i, &format!("g{i}"), 6000 + i, &[])
    });
    assert!(matches!(take(&mut state, 0, others), Ok(Taken::NotYet(_))));
}

#[test]
fn before_the_first_publication_it_is_known_who_has_what() {
    for locals_first in [true, false] {
        let mut state = fresh(&["lab", "asked"], Served::new(), None);
        let accounts = Locals::default();
        if locals_first {
            state.set_locals(accounts.clone());
        }
        take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
        take(&mut state, 1, Image::full()).expect("well formed");
        state.set_locals(accounts);
        assert_eq!(state.claims.user_named(b"alice"), Some((0, 1)));
        let mallory = Image::full().user(1, "mallory", 5001, 5001).records();
        state
            .change(1, &[1], |entries| entries.learn(Records::bare(&mallory)))
            .expect("well formed");
        assert_eq!(state.claims.uid(5001), Some((0, 1)), "{locals_first}");
    }
}

#[test]
fn a_name_that_is_free_again_is_the_next_ones_at_once() {
    let mut state = host(&["asked", "lab"]);
    take(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    published(&mut state, |_| {});
    assert_eq!(state.claims.user_named(b"alice"), Some((0, 1)));
    take(&mut state, 0, Image::changes(1).gone(1)).expect("leads on");
    assert_eq!(state.claims.user_named(b"alice"), Some((1, 1)));
}

#[test]
fn behind_a_domain_that_was_never_read_nothing_is_served() {
    let mut state = host(&["corp", "lab"]);
    take(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    assert_eq!(state.waits_for(), None, "there is nothing to be lost");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), None);
    assert_eq!(state.domain_counts()[1].waits_for, "corp");
    let shown = state.show(LookUp::UserByName, b"alice");
    assert_eq!(shown[0].refused, "domain corp, which goes before, was never read");
    take(&mut state, 0, Image::full().user(1, "bob", 5001, 5001)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), Some(7001));
    assert_eq!(state.domain_counts()[1].waits_for, "");
    assert_eq!(state.show(LookUp::UserByName, b"alice")[0].refused, "");
    let lab = Served::from([("lab".to_owned(), Counts::default())]);
    let mut state = fresh(&["corp", "lab"], lab, None);
    state.set_locals(Locals::default());
    take(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    state.lose_patience(0);
    assert_eq!(state.waits_for().as_deref(), Some("domain corp can be read"), "alice would vanish");
}

#[test]
fn groups_within_groups_that_add_up_to_too_much_are_refused_and_the_rest_is_served() {
    // Each holds the one after it: 12,000 entries, 144 million steps.
    let mut state = host(&["corp", "lab"]);
    let chain = (1..12_000)
        .fold(Image::full(), |image, i| image.group(i, &format!("g{i}"), 10_000 + i, &[i + 1]));
    let chain = chain.user(12_000, "alice", 5001, 5001).group(12_001, "flat", 6001, &[12_000]);
    take(&mut state, 0, chain).expect("well formed");
    let lab = Image::full().user(1, "bob", 7001, 7001).group(2, "in", 7002, &[1]);
    take(&mut state, 1, lab.group(3, "out", 7003, &[2])).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "flat").expect("there"), ["alice"]);
        assert_eq!(members_of(snapshot, "out").expect("there"), ["bob"]);
        assert_eq!(members_of(snapshot, "g1").expect("there"), ["alice"]);
    });
    let refused = &state.domain_counts()[0].refused;
    let [(reason, count)] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(reason, "the groups within the domain's groups add up to too much");
    assert_eq!(reasons(&state, "corp").len(), (*count).min(100) as usize);
    assert!((1..11_999).contains(count), "{count}");
}

#[test]
fn what_changed_while_a_snapshot_was_made_does_not_go_back_with_it() {
    let mut state = host(&["asked"]);
    let alice = Image::full().user(1, "alice", 5001, 5001).records();
    let found = |state: &mut State, records: &[u8]| {
        state
            .change(0, &[1, 2], |entries| entries.learn(Records::bare(records)))
            .expect("well formed")
    };
    assert!(found(&mut state, &alice));
    assert!(!found(&mut state, &alice), "nothing new");
    let made = state.begin().make().expect("an image");
    let anew = Image::full().gone(1).user(2, "alice", 5001, 5001).records();
    assert!(found(&mut state, &anew));
    state.published(made);
    assert_eq!(state.claims.user_named(b"alice"), Some((0, 2)), "not the one that is gone");
}

#[test]
fn many_ids_with_one_fault_are_one_reason() {
    let mut state = host(&["corp"]);
    let image = (0..300).fold(Image::full(), |image, i| {
        image.user(i, &format!("u{i}"), 100 + i, 5000).group(1000 + i, &format!("g{i}"), 100, &[])
    });
    take(&mut state, 0, image).expect("well formed");
    published(&mut state, |_| {});
    let refused = &state.domain_counts()[0].refused;
    let expected = ["gid 100 is below min_id (1000)", "uids below min_id (1000)"];
    assert_eq!(refused[..], expected.map(|reason| (reason.to_owned(), 300)));
    assert_eq!(reasons(&state, "corp")[0], "group g0: gid 100 is below min_id (1000)");
}

/// As many crowds as there is room for beside `far`.
const CROWDS: u32 = 22;

#[test]
fn a_domain_that_would_take_too_much_memory_is_refused_and_the_others_are_served() {
    let mut state = host(&["corp", "lab"]);
    let good = || Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6001, &[1]);
    take(&mut state, 0, good()).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
    let crowds = |image: Image| (1..=1 + CROWDS).fold(image.far(), Image::crowd);
    for image in
        [crowds(Image::full()), crowds(Image::full()).of_process(2), crowds(Image::changes(1))]
    {
        assert_eq!(take(&mut state, 0, image), Err(Refused::TooMuch));
    }
    assert_eq!(state.position(0), (1, 1));
    let changes = Image::changes(1).user(3, "carol", 7003, 7003);
    take(&mut state, 1, changes).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff").expect("there"), ["alice"]);
        for (name, uid) in [("alice", 5001), ("bob", 7001), ("carol", 7003)] {
            assert_eq!(uid_of(snapshot, name), Some(uid));
        }
    });
    take(&mut state, 0, Image::changes(1).user(4, "dave", 5004, 5004)).expect("believed again");
}

#[test]
fn answers_that_add_up_to_too_much_are_refused() {
    let mut state = host(&["asked", "lab"]);
    take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
    learn(&mut state, 0, Image::full().far()).expect("room");
    for number in 0..CROWDS {
        learn(&mut state, 0, Image::full().crowd(1 + number)).expect("room");
    }
    let another = || Image::full().user(2, "mallory", 5002, 5002).crowd(1 + CROWDS);
    for _ in 0..3 {
        assert_eq!(learn(&mut state, 0, another()), Err(Refused::TooMuch));
    }
    published(&mut state, |snapshot| {
        for (name, uid) in [("alice", Some(5001)), ("bob", Some(7001)), ("mallory", None)] {
            assert_eq!(uid_of(snapshot, name), uid, "{name}");
        }
    });
}

#[test]
fn changes_that_are_too_much_only_beside_what_they_replace_are_not_when_all_is_fetched() {
    let mut state = host(&["corp"]);
    let crowds = |image: Image| (1..1 + CROWDS).fold(image.far(), Image::crowd);
    take(&mut state, 0, crowds(Image::full())).expect("room");
    let change = || Image::changes(1).crowd(1);
    assert_eq!(take(&mut state, 0, change()), Err(Refused::TooMuch));
    take(&mut state, 0, crowds(Image::full()).leads_to(2)).expect("counted exactly");
    // What is gone counts no more.
    take(&mut state, 0, (50..100).fold(Image::changes(2), Image::gone)).expect("always room");
    take(&mut state, 0, Image::changes(3).crowd(1)).expect("room");
}

#[test]
fn a_list_with_the_same_again_and_again_is_refused() {
    let mut state = host(&["corp"]);
    let list = vec![1; NUMBERS_MAX as usize + 1];
    let image = Image::full().group(1, "staff", 6001, &list);
    assert_eq!(take(&mut state, 0, image), Err(Refused::List(list.len())));
}

#[test]
fn names_in_reports_are_cut() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, &"x".repeat(60_000), 5000, 5000);
    take(&mut state, 0, image).expect("well formed");
    published(&mut state, |_| {});
    let name = format!("user {}…: the name is longer than 255 bytes", "x".repeat(256));
    assert_eq!(reasons(&state, "corp"), [name]);
}

#[test]
fn two_users_of_one_name_leave_its_memberships_to_the_one_that_is_served() {
    let mut state = host(&["asked"]);
    let other = exchange::User {
        number: 2,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5002,
        gid: 5002,
        name: b"alice",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    exchange::write_user(&mut image.bytes, &other).expect("fits");
    take(&mut state, 0, image.counted()).expect("well formed");
    let staff = &state.domains[0].entries;
    assert_eq!(staff.referred(1).collect::<Vec<_>>(), [1, 2]);
    take(&mut state, 0, Image::changes(1).gone(2)).expect("leads on");
    assert_eq!(state.domains[0].entries.referred(1).collect::<Vec<_>>(), [1]);
    take(&mut state, 0, Image::changes(2).gone(1)).expect("leads on");
    assert_eq!(state.domains[0].entries.referred(1).count(), 0);
}

#[test]
fn names_in_reports_can_be_printed_and_sent() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "a\0b\u{1b}[2J", 5000, 5000).bytes();
    take_bytes(&mut state, 0, &image).expect("well formed");
    published(&mut state, |_| {});
    assert_eq!(
        reasons(&state, "corp"),
        [r"user a\u{0}b\u{1b}[2J: the name has control characters"]
    );
}

#[test]
fn show_tells_every_domains_entry_and_which_is_served() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
    take(&mut state, 0, corp).expect("well formed");
    take(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    published(&mut state, |_| {});
    let shown = state.show(LookUp::UserByName, b"alice");
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].refused.as_str(), &shown[0].related[..]), ("", &["staff".to_owned()][..]));
    assert_eq!(shown[1].refused, "an earlier domain has this name");
}

/// The snapshot of a state in a folder, of that generation.
fn put(folder: &Path, state: &State, generation: u64) -> (Vec<u8>, Section) {
    let made = state.begin().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, generation).expect("write to memory");
    let bytes = bytes.into_inner();
    std::fs::write(folder.join("roster.snap"), &bytes).expect("write");
    let identity = Identity::of(&bytes).expect("a snapshot");
    (bytes, Section { identity, served: made.served })
}

#[test]
fn snapshot_of_another_writer_counts_as_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, snapshot) = (folder.path(), folder.path().join("roster.snap"));
    let found = || super::in_place(folder, &snapshot, None, &config(&["corp"]));
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (own, section) = put(folder, &state, 7);
    let counts = section.served.clone();

    // Nothing is recorded: it may be this publisher's.
    let unknown = found();
    assert!(unknown.foreign.is_empty() && unknown.own.is_none() && unknown.previous.is_some());

    // The record has the one in place and the next, whichever is in place.
    let next = Identity { generation: 8, checksum: 1 };
    let next = Section { identity: next, served: Served::new() };
    served::write(folder, &[section.clone(), next]).expect("written");
    let ours = found();
    assert_eq!((ours.served, ours.newest, &*ours.foreign), (counts.clone(), 8, ""));
    assert_eq!(ours.own.expect("it is known").1, section);

    // A damaged one was its own.
    served::write(folder, &[section]).expect("written");
    let mut damaged = own.clone();
    let at = own.windows(3).position(|text| text == b"u19").expect("a name");
    damaged[at] ^= 1;
    std::fs::write(&snapshot, damaged).expect("write");
    let damaged = found();
    assert!(damaged.own.is_none() && damaged.foreign.is_empty());
    assert_eq!(damaged.served, counts);

    // Another host's of the same generation, an older one, and a newer one.
    let mut other = host(&["corp"]);
    take(&mut other, 0, twenty_without(9, 2)).expect("well formed");
    for generation in [7, 3, 90] {
        put(folder, &other, generation);
        let foreign = found();
        assert!(foreign.foreign.contains(&format!("generation {generation}")), "{generation}");
        assert!(foreign.own.is_none() && foreign.previous.is_none());

        let mut anew = fresh(&["corp"], foreign.served, foreign.previous);
        anew.set_foreign();
        anew.set_locals(Locals::default());
        assert!(anew.waits_for().is_some(), "the domain is waited for");
        assert!(matches!(take(&mut anew, 0, twenty_without(0, 3)), Ok(Taken::Changes(_))));
        assert_eq!(anew.waits_for(), None, "nothing would go");
    }
    let mut impatient = fresh(&["corp"], found().served, None);
    impatient.set_foreign();
    impatient.set_locals(Locals::default());
    impatient.lose_patience(0);
    assert_eq!(impatient.waits_for(), None, "it is not kept for a directory that is away");
}

#[test]
fn lost_snapshot_is_made_again_while_removals_wait() {
    let mut state = host(&["corp"]);
    take(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let mut anew = fresh(&["corp"], served.clone(), Some(bytes));
    assert!(anew.keep(true).is_none(), "the host's accounts are not known yet");
    anew.set_locals(locals(&[("root", 0)], &[("root", 0)]));
    assert!(kept(&mut anew).is_none());
    let kept = anew.keep(true).expect("it is lost");
    let (displaced, remade) = kept.make().expect("a snapshot");
    assert_eq!(displaced, Displaced::default());
    assert_eq!(remade.map(|remade| remade.served), Some(served));
}
