// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mirror of Active Directory, with a real Samba AD DC: ids from SIDs, nested and primary groups, changes, long lists
//! of members, and logins by password. A script that shares no code with the daemon computes the expected entries.

use roster_system_tests::pam::{self, PamHost};
use roster_system_tests::rosterd::LONG_WAIT;
use roster_system_tests::servers::Samba;
use roster_system_tests::{DomainTable, Rosterd, needs_root, run, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const READER: &str = "CN=reader,CN=Users,DC=lab,DC=test";
/// `userAccountControl` of an enabled account that needs no password.
const ENABLED: &str = "544";
/// Types of security groups, and of a distribution group (MS-ADTS 2.2.12).
const GLOBAL: &str = "-2147483646";
const DOMAIN_LOCAL: &str = "-2147483644";
const UNIVERSAL: &str = "-2147483640";
const DISTRIBUTION: &str = "2";

fn dn(name: &str) -> String {
    format!("CN={name},{}", Samba::USERS)
}

fn user(name: &str) -> Value {
    json!({
        "dn": dn(name),
        "objectClass": "user",
        "sAMAccountName": name,
        "userAccountControl": ENABLED,
    })
}

fn group(name: &str, kind: &str, members: &[&str]) -> Value {
    let members: Vec<String> = members.iter().map(|name| dn(name)).collect();
    let mut entry = json!({
        "dn": dn(name),
        "objectClass": "group",
        "sAMAccountName": name,
        "groupType": kind,
    });
    if !members.is_empty() {
        entry["member"] = json!(members);
    }
    entry
}

/// Entries of a small domain, with everything that a mirror has to know about groups.
fn small_domain() -> Vec<Value> {
    let mut alice = user("Alice");
    alice["displayName"] = json!("Alice Example");
    alice["unixHomeDirectory"] = json!("/home/al");
    alice["loginShell"] = json!("/bin/sh");
    let mut erin = user("erin");
    erin["gecos"] = json!("Erin in Room 5");
    let mut entries =
        vec![user("reader"), alice, user("bob"), user("carol d"), user("Dörte"), erin];
    entries[0]["password"] = json!(Samba::PASSWORD);
    entries[0]["userAccountControl"] = json!("512");
    entries.extend([
        group("inner", GLOBAL, &["Alice"]),
        group("middle", GLOBAL, &["inner", "bob"]),
        group("outer", UNIVERSAL, &["middle", "Dörte"]),
        group("here", DOMAIN_LOCAL, &["outer", "Domain Users"]),
        group("circle a", GLOBAL, &["bob"]),
        group("circle b", GLOBAL, &["circle a"]),
        group("mailing", DISTRIBUTION, &["bob", "inner"]),
        group("around mailing", GLOBAL, &["mailing"]),
        group("empty", GLOBAL, &[]),
        group("staff", GLOBAL, &[]),
        group("offices", GLOBAL, &["staff"]),
    ]);
    entries.push(json!({
        "dn": dn("box"),
        "objectClass": "computer",
        "sAMAccountName": "BOX$",
        "userAccountControl": "4096",
    }));
    entries
}

fn started(entries: &[Value]) -> Samba {
    let mut samba = Samba::provision("ldap, cldap, kdc", &[]);
    samba.fill(entries);
    samba.launch();
    samba
}

fn domain(samba: &Samba) -> DomainTable {
    DomainTable::active_directory("lab", samba, READER)
        .with("reconcile_interval", "\"2s\"")
        .with("mass_deletion_threshold", "1")
}

/// Returns the users and groups that the host has to serve, by the script.
fn expected(samba: &Samba) -> Value {
    let ldif = samba.search(&[
        "(objectSid=*)",
        "objectSid",
        "sAMAccountName",
        "primaryGroupID",
        "sAMAccountType",
        "groupType",
        "member",
        "displayName",
        "name",
        "gecos",
        "unixHomeDirectory",
        "loginShell",
    ]);
    let file = samba.path("export.ldif");
    fs::write(&file, ldif).expect("write the export");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/expected_ad.py");
    let mut command = Command::new("python3");
    command.arg(script).arg("lab").stdin(File::open(file).expect("open the export"));
    let done = run(&mut command);
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", done.error()))
}

/// Asks glibc on the host for all users and groups, in the form of the script.
const SERVED: &str = r#"
import grp, json, os, pwd
users = {
    user.pw_name: {
        "line": ":".join(map(str, user)),
        "gids": sorted(set(os.getgrouplist(user.pw_name, user.pw_gid))),
    }
    for user in pwd.getpwall()
}
groups = {g.gr_name: {"gid": g.gr_gid, "members": sorted(g.gr_mem)} for g in grp.getgrall()}
for name, user in users.items():
    assert pwd.getpwnam(name.upper()).pw_uid == int(user["line"].split(":")[2])
for name, group in groups.items():
    assert grp.getgrgid(group["gid"]).gr_name == name
print(json.dumps({"users": users, "groups": groups}))
"#;

/// Returns the differences between two tables of users or groups.
fn differences(expected: &Value, served: &Value) -> Vec<String> {
    let table = |value: &Value| -> BTreeMap<String, Value> {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(name, entry)| (name.clone(), entry.clone())).collect()
    };
    let (expected, served) = (table(expected), table(served));
    let names = expected.keys().chain(served.keys().filter(|name| !expected.contains_key(*name)));
    let differing = names.filter(|name| expected.get(*name) != served.get(*name));
    differing
        .map(|name| format!("{name}: {:?} instead of {:?}", served.get(name), expected.get(name)))
        .collect()
}

/// Waits until the host serves exactly the entries of the directory.
#[track_caller]
fn expect_equal(samba: &Samba, rosterd: &Rosterd) -> Value {
    let expected = expected(samba);
    rosterd.wait_for_snapshot();
    wait_for(LONG_WAIT, || {
        let done = run(rosterd.python_with_roster_only().args(["-c", SERVED]));
        let served: Value = serde_json::from_slice(&done.stdout)
            .map_err(|_| format!("{}{}", done.error(), rosterd.log()))?;
        let kinds = ["users", "groups"];
        let different: Vec<String> =
            kinds.iter().flat_map(|kind| differences(&expected[*kind], &served[*kind])).collect();
        if different.is_empty() { Ok(()) } else { Err(different.join("\n")) }
    });
    expected
}

/// Returns a modification of one attribute.
fn modification(name: &str, change: &str, attribute: &str, values: &[&str]) -> String {
    let values: String = values.iter().map(|value| format!("{attribute}: {value}\n")).collect();
    format!("dn: {}\nchangetype: modify\n{change}: {attribute}\n{values}-\n\n", dn(name))
}

fn rename(name: &str, to: &str) -> String {
    format!("dn: {}\nchangetype: modrdn\nnewrdn: CN={to}\ndeleteoldrdn: 1\n\n", dn(name))
}

fn deletion(name: &str) -> String {
    format!("dn: {}\nchangetype: delete\n\n", dn(name))
}

#[test]
fn ad_mirror_equals_directory_and_follows_changes() {
    if !needs_root() {
        return;
    }
    let samba = started(&small_domain());
    let mut rosterd = Rosterd::prepared(&[domain(&samba)]);
    rosterd.set_network(&samba);
    rosterd.launch();
    let first = expect_equal(&samba, &rosterd);
    let gids = |name: &str| first["users"][name]["gids"].as_array().expect("gids").len();
    // alice: Domain Users, inner, middle, outer, here.
    assert_eq!((gids("alice"), gids("carol d")), (5, 2), "{first}");
    for left_out in ["mailing", "administrators", "box$"] {
        assert!(first["groups"].get(left_out).is_none() && first["users"].get(left_out).is_none());
    }
    let status = rosterd.domain("lab").expect("a status");
    assert_eq!(status["tracking"], "polling of update sequence numbers", "{status}");
    assert_eq!(status["referrals"], json!([]), "{status}");
    for change in [
        modification("inner", "add", "member", &[&dn("bob"), &dn("carol d")]),
        modification("middle", "delete", "member", &[&dn("bob")]),
        modification("bob", "add", "displayName", &["Robert"]),
        // The primary group of a user leaves the list of its members.
        modification("staff", "add", "member", &[&dn("erin")]),
        rename("Dörte", "Dorothea"),
        rename("inner", "core"),
        modification("Dorothea", "replace", "sAMAccountName", &["dorothea"]),
        modification("circle a", "add", "member", &[&dn("circle b")]),
        deletion("bob"),
        deletion("core"),
        format!(
            "dn: {}\nchangetype: add\nobjectClass: user\nsAMAccountName: frank\n\
             userAccountControl: {ENABLED}\n\n",
            dn("frank")
        ),
        modification("outer", "add", "member", &[&dn("frank")]),
        // Another account with the same DN at once. It is in no group.
        format!(
            "{}dn: {}\nchangetype: add\nobjectClass: user\nsAMAccountName: frank\n\
             userAccountControl: {ENABLED}\n\n",
            deletion("frank"),
            dn("frank")
        ),
        format!(
            "dn: {}\nchangetype: add\nobjectClass: user\nsAMAccountName: bob\n\
             userAccountControl: {ENABLED}\n\n",
            dn("bob")
        ),
    ] {
        samba.change(&change);
        expect_equal(&samba, &rosterd);
    }
    let staff = samba.search(&["(sAMAccountName=staff)", "primaryGroupToken"]);
    let token = staff.lines().find_map(|line| line.strip_prefix("primaryGroupToken: "));
    let token = token.expect("a RID").to_owned();
    samba.change(&modification("erin", "replace", "primaryGroupID", &[&token]));
    let last = expect_equal(&samba, &rosterd);
    assert_eq!(last["groups"]["offices"]["members"], json!(["erin"]), "by its primary group");
    let container = "OU=Left,DC=lab,DC=test";
    samba.change(&format!("dn: {container}\nchangetype: add\nobjectClass: organizationalUnit\n\n"));
    samba.change(&format!(
        "dn: {}\nchangetype: modrdn\nnewrdn: CN=Alice\ndeleteoldrdn: 1\nnewsuperior: {container}\n\n",
        dn("Alice")
    ));
    samba.change(&format!(
        "dn: {container}\nchangetype: modrdn\nnewrdn: OU=Gone\ndeleteoldrdn: 1\n\n"
    ));
    expect_equal(&samba, &rosterd);
    // A new connection reads everything again, and loses no entry.
    rosterd.stop();
    samba.change(&deletion("carol d"));
    samba.change(&modification("outer", "add", "member", &[&dn("erin")]));
    rosterd.launch();
    expect_equal(&samba, &rosterd);
}

/// Members of the group that is read in parts.
const CROWD: usize = 2_000;

#[test]
fn ad_long_group_in_ranges_denies_members() {
    if !needs_root() {
        return;
    }
    let names: Vec<String> = (0..CROWD).map(|number| format!("n{number:04}")).collect();
    let mut entries = small_domain();
    entries.extend(names.iter().map(|name| user(name)));
    let members: Vec<&str> = names.iter().map(String::as_str).collect();
    entries.extend([group("crowd", GLOBAL, &members), group("denied", GLOBAL, &["crowd"])]);
    let samba = started(&entries);
    // Samba returns whole lists unless a range is requested.
    let domain = domain(&samba).with("member_range", "100");
    let mut rosterd = Rosterd::prepared(&[domain]);
    rosterd.set_tables("[domain.lab.access]\ndenied_groups = [\"Denied\"]\n");
    rosterd.set_network(&samba);
    rosterd.launch();
    let served = expect_equal(&samba, &rosterd);
    assert_eq!(served["groups"]["denied"]["members"].as_array().map(Vec::len), Some(CROWD));
    let allowed = |name: &str| access(&rosterd, name, "login")["allowed"] == true;
    assert!(allowed("alice"));
    let some = names.iter().step_by(4);
    let allowed: Vec<&String> = some.filter(|name| allowed(name)).collect();
    assert_eq!(allowed, Vec::<&String>::new(), "{}", rosterd.log());
    // A change in the middle moves all positions behind it.
    samba.change(&modification("crowd", "delete", "member", &[&dn("n0700")]));
    expect_equal(&samba, &rosterd);
    assert!(access(&rosterd, "n0700", "login")["allowed"] == true);
}

/// Returns the reply of `roster access`.
fn access(rosterd: &Rosterd, user: &str, service: &str) -> Value {
    let told = rosterd.roster(&["access", user, "--service", service, "--json"]);
    serde_json::from_slice(&told.stdout)
        .unwrap_or_else(|_| panic!("{}\n{}", told.error(), rosterd.log()))
}

const RULES: &str = r#"
[domain.lab.access]
enabled = true

[domain.lab.access.service.cron]
denied_groups = ["Domain Users"]

[domain.lab.access.service.sshd]
denied_groups = ["HERE"]

[domain.lab.access.service.su]
allowed_groups = ["outer"]
"#;

#[test]
fn ad_logins_follow_passwords_groups_and_accounts() {
    if !needs_root() {
        return;
    }
    let mut entries = small_domain();
    for (place, name) in [(1, "Alice"), (2, "bob")] {
        assert_eq!(entries[place]["sAMAccountName"], name);
        entries[place]["password"] = json!(Samba::PASSWORD);
        entries[place]["userAccountControl"] = json!("512");
    }
    let samba = started(&entries);
    let domain = domain(&samba).with("auth", "\"ldap\"").with("offline_credentials", "false");
    let mut rosterd = Rosterd::installed(&[domain]);
    rosterd.set_tables(RULES);
    pam::prepare(&rosterd);
    rosterd.set_network(&samba);
    rosterd.launch();
    let pam = PamHost::on(&rosterd, "alice");
    let accepted = "successfully authenticated";
    assert_eq!(pam.authenticate("alice", Samba::PASSWORD), accepted);
    assert_eq!(pam.authenticate("ALICE", Samba::PASSWORD), accepted, "in any case");
    for wrong in ["another", "", "passw0rd-of-all"] {
        assert_ne!(pam.authenticate("alice", wrong), accepted, "{wrong:?}");
    }
    let verdict = |user: &str, service: &str| access(&rosterd, user, service)["allowed"] == true;
    let of = |user: &str| ["login", "cron", "sshd", "su"].map(|service| verdict(user, service));
    // Domain Users is the primary group of all, and a member of `here`.
    assert_eq!(of("alice"), [true, false, false, true], "{}", access(&rosterd, "alice", "cron"));
    assert_eq!(of("erin"), [true, false, false, false]);
    let control = |value: &str| {
        samba.change(&modification("bob", "replace", "userAccountControl", &[value]));
    };
    assert_eq!(pam.authenticate("bob", Samba::PASSWORD), accepted);
    control("514");
    wait_for(LONG_WAIT, || match verdict("bob", "login") {
        false => Ok(()),
        true => Err("bob is disabled".to_owned()),
    });
    assert!(rosterd.getent("passwd", "bob").is_some(), "a disabled account is served");
    assert_ne!(pam.authenticate("bob", Samba::PASSWORD), accepted);
    control("512");
    wait_for(LONG_WAIT, || match verdict("bob", "login") {
        true => Ok(()),
        false => Err("bob is enabled".to_owned()),
    });
    assert_eq!(pam.authenticate("bob", Samba::PASSWORD), accepted);
}
