// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several domains on one host: the list of domains, logins of the second one, a backend that restarts during a lookup,
//! and the host's own tools beside them. SSSD's tests make the same claims.

use roster_system_tests::pam::{self, PASSWORD, PamHost};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::servers::Relay;
use roster_system_tests::test_host::find_tool;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, needs_root,
    run, wait_for, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a login.
const RIGHT: &str = "successfully authenticated";

/// A domain of text files with one user and one group of that user.
fn text_domain(folder: &TempDir, name: &str, user: &str, uid: u32) -> DomainTable {
    let [passwd, group] =
        ["passwd", "group"].map(|kind| folder.path().join(format!("{name}.{kind}")));
    fs::write(&passwd, format!("{user}:x:{uid}:{uid}::/home/{user}:/bin/sh\n")).expect("write");
    fs::write(&group, format!("{user}-group:x:{uid}:{user}\n")).expect("write");
    DomainTable::files(name, &passwd, &group)
}

fn line(user: &str, uid: u32) -> String {
    format!("{user}:*:{uid}:{uid}::/home/{user}:/bin/sh")
}

#[test]
fn domains_list_decides_which_ones_serve() {
    let folder = tempfile::tempdir().expect("make a directory");
    let domains =
        [text_domain(&folder, "corp", "alice", 5001), text_domain(&folder, "lab", "bob", 7001)];
    let mut rosterd = Rosterd::start(&domains);
    let (alice, bob) = (line("alice", 5001), line("bob", 7001));
    rosterd.expect("passwd", "alice", Some(&alice));
    rosterd.expect("passwd", "bob@lab", Some(&bob));
    let config = rosterd.config();
    let drop_ins = PathBuf::from(format!("{}.d", config.display()));
    fs::create_dir(&drop_ins).expect("create");
    let write = |list: &str| {
        fs::write(drop_ins.join("10-list.toml"), format!("[host]\ndomains = {list}\n"))
            .expect("write");
    };
    // Both tables are there, and the list of the drop-in has one.
    write("[\"corp\"]");
    rosterd.process().signal(Signal::HUP);
    rosterd.expect("passwd", "bob@lab", None);
    rosterd.expect("passwd", "alice", Some(&alice));
    rosterd.stop();
    rosterd.launch();
    rosterd.expect("passwd", "alice", Some(&alice));
    rosterd.expect("passwd", "bob", None);
    rosterd.expect("group", "bob-group", None);
    // A wrong list changes nothing.
    for list in ["[\"corp\", \"nowhere\"]", "[]", "[\"lab\", \"lab\"]"] {
        write(list);
        let checked = rosterd.roster(&["check-config", config.to_str().expect("a path")]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.code != 0 && said.contains("10-list.toml:2: "), "{list}: {said}");
        rosterd.process().signal(Signal::HUP);
        wait_for(SOON, || {
            let error = rosterd.status()?["config"]["error"].clone();
            let is_told = error.as_str().is_some_and(|error| error.contains("10-list.toml:2: "));
            if is_told { Ok(()) } else { Err(error.to_string()) }
        });
        rosterd.expect("passwd", "alice", Some(&alice));
    }
    write("[\"lab\", \"corp\"]");
    rosterd.process().signal(Signal::HUP);
    rosterd.expect("passwd", "bob", Some(&bob));
    rosterd.expect("passwd", "alice", Some(&alice));
}

/// A login binds at the server of the user's domain only, in both orders of the domains.
#[test]
fn domains_second_logs_in_without_first() {
    if !needs_root() {
        return;
    }
    // The first users have one uid, so the second users have different ones.
    let first = pam::slapd_with_users(&["alice"]);
    let second = pam::slapd_with_users(&["alice", "bob"]);
    let tables = [pam::domain(&first), pam::domain(&second).renamed("lab")];
    let [corp, lab] = tables;
    for (shell, order) in [("/bin/one", [corp.clone(), lab.clone()]), ("/bin/two", [lab, corp])] {
        let rosterd = pam::start_daemon(&order, "");
        let pam = PamHost::on(&rosterd, "bob");
        pam::wait_until_user_known(&rosterd, "bob");
        // The minimum of a few: rosterd may check that the server is there, and the request itself is a bind, too.
        let binds = || {
            let tried = (0..4).map(|_| {
                let before = first.binds();
                assert_eq!(pam.authenticate("bob", PASSWORD), RIGHT, "{}", rosterd.log());
                first.binds() - before - 1
            });
            tried.min().expect("a few")
        };
        assert_eq!(binds(), 0, "binds at the other server");
        // A change in the second domain, between two logins.
        let dn = LdifBuilder::new(Schema::Rfc2307).user_dn("bob");
        second.set(&dn, "loginShell", &[shell]);
        assert_eq!(pam.authenticate("bob", PASSWORD), RIGHT);
        wait_until(SOON, "the change is served", || {
            rosterd.getent("passwd", "bob").is_some_and(|line| line.ends_with(shell))
        });
    }
}

/// As the tools of shadow-utils change local users only.
#[test]
fn domains_local_tools_change_no_entry() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("make a directory");
    let mut rosterd = Rosterd::prepared(&[text_domain(&folder, "lab", "bob", 7001)]);
    let etc = rosterd.host().path("private-etc");
    let copied = run(Command::new("cp").args(["-a", "/etc"]).arg(&etc));
    assert_eq!(copied.code, 0, "{}", copied.error());
    let quoted = etc.display().to_string();
    rosterd.set_start_script(&format!("mount --bind {quoted:?} /etc\nexec \"$@\""));
    rosterd.launch();
    let bob = line("bob", 7001);
    rosterd.expect("passwd", "bob", Some(&bob));
    for (tool, arguments) in [
        ("usermod", &["-g", "0", "bob"][..]),
        ("usermod", &["-s", "/bin/false", "bob@lab"]),
        ("userdel", &["-r", "bob"]),
        ("groupmod", &["-g", "7777", "bob-group"]),
        ("groupmod", &["-n", "other", "bob-group"]),
        ("groupdel", &["bob-group"]),
    ] {
        let path = find_tool(tool, "passwd");
        let done = run(rosterd.command_inside(&path).args(arguments));
        assert_ne!(done.code, 0, "{tool} {arguments:?}");
        assert!(done.error().contains("does not exist"), "{tool}: {}", done.error());
    }
    rosterd.expect("passwd", "bob", Some(&bob));
    rosterd.expect("group", "bob-group", Some("bob-group:*:7001:bob"));
    for file in ["passwd", "group"] {
        let [before, after] =
            [Path::new("/etc"), &etc].map(|place| fs::read(place.join(file)).expect("read"));
        assert_eq!(before, after, "{file}");
    }
}

#[test]
fn lookup_during_backend_restart_ends_and_repeats() {
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let text = corp.tree() + &corp.user("alice", 5001);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &text);
    let relay = Relay::to(slapd.port());
    let domain = DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]);
    let rosterd = Rosterd::start(&[domain.with("mode", "\"on-demand\"")]);
    rosterd.wait_for_snapshot();
    rosterd.expect_domain_status("corp", "online", true);
    relay.drop_traffic();
    let mut command = rosterd.host().command("getent");
    let command = command.args(["passwd", "alice"]).stdout(Stdio::piped());
    let lookup = command.spawn().expect("start getent");
    let before = rosterd.wait_for_role("backend:corp");
    rosterd.kill_role("backend:corp");
    relay.resume_traffic();
    let done = lookup.wait_with_output().expect("it ends");
    let found = String::from_utf8_lossy(&done.stdout).into_owned();
    // Without a reply the lookup is an error, and the next one finds the user.
    assert!(found.is_empty() != found.starts_with("alice:*:5001:"), "{found}");
    wait_until(SOON, "another backend", || {
        rosterd.role("backend:corp").is_some_and(|pid| pid != before)
    });
    rosterd.expect_domain_status("corp", "online", true);
    wait_until(SOON, "the user is found", || {
        rosterd.getent("passwd", "alice").is_some_and(|line| line.starts_with("alice:*:5001:"))
    });
}

/// The name has an IPv6 address without a server, which comes first, and an IPv4 address with one.
#[test]
fn server_dead_ipv6_address_next_is_used() {
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let text = corp.tree() + &corp.user("alice", 5001);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &text);
    let uri = format!("ldap://localhost:{}", slapd.port());
    let mut rosterd = Rosterd::prepared(&[DomainTable::ldap_through("corp", &slapd, &[&uri])]);
    let hosts = rosterd.host().path("hosts");
    fs::write(&hosts, "::1 localhost\n127.0.0.1 localhost\n").expect("write");
    let quoted = hosts.display().to_string();
    rosterd.set_start_script(&format!("mount --bind {quoted:?} /etc/hosts\nexec \"$@\""));
    rosterd.launch();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.expect_domain_status("corp", "server", uri);
    wait_until(SOON, "the user is served", || rosterd.getent("passwd", "alice").is_some());
}

/// rosterd starts before the server, as before the network of the host.
#[test]
fn domain_without_server_at_start_comes_online() {
    let corp = LdifBuilder::new(Schema::Rfc2307);
    let text = corp.tree() + &corp.user("alice", 5001);
    let slapd = Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &text);
    let relay = Relay::to(slapd.port());
    for mode in ["replicate", "on-demand"] {
        relay.drop_traffic();
        let domain = DomainTable::ldap_through("corp", &slapd, &[&relay.uri()]);
        let rosterd = Rosterd::start(&[domain.with("mode", &format!("{mode:?}"))]);
        rosterd.expect_domain_status("corp", "online", false);
        // The same list in each call.
        let listed = || rosterd.roster(&["domain", "list"]).text();
        assert_eq!(rosterd.getent("passwd", "alice"), None, "{mode}");
        relay.resume_traffic();
        rosterd.expect_domain_status("corp", "online", true);
        wait_until(SOON, "the user is served", || rosterd.getent("passwd", "alice").is_some());
        for _ in 0..10 {
            let list = listed();
            assert!(list.contains("corp"), "{mode}: {list}");
        }
        // The status names the server in use, not the first of the configuration.
        rosterd.expect_domain_status("corp", "server", relay.uri());
    }
}
