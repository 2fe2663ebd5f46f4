// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a Samba AD DC, which serves LDAP, Kerberos and DNS: reports equal its log. Its ports are fixed, so it
//! runs in its own network namespace.

mod common;

use common::{count, read, warnings};
use roster_system_tests::servers;
use roster_system_tests::{needs_root, wait_until};
use serde_json::Value;
use std::time::Duration;

const PASSWORD: &str = servers::Samba::PASSWORD;

struct Samba(servers::Samba);

impl Samba {
    /// Starts a domain with the users `u0` to `u3`.
    fn start() -> Self {
        let samba =
            servers::Samba::start("ldap, cldap, kdc, dns", &["log level=1 auth_audit:4 dns:5"]);
        wait_until(Duration::from_secs(60), "its DNS answers", || samba.is_listening("53"));
        Self(samba)
    }

    /// Returns the number of lines of the log that contain all words.
    fn logged(&self, words: &[&str]) -> u64 {
        let log = self.0.log();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count() as u64
    }

    fn load(&self, arguments: &[&str]) -> (i32, Value) {
        let mut lab = self.0.command_inside(env!("CARGO_BIN_EXE_roster-lab"));
        lab.args(arguments).args(["--duration", "1", "--warm-up", "200ms", "--users", "2"]);
        read(&lab.args(["--json", "-", "--probe", "0"]).output().expect("start roster-lab"))
    }

    /// Runs a load and compares its report with the log.
    fn counted(&self, words: &[&str], before_the_run: u64, arguments: &[&str]) {
        let before = self.logged(words);
        let (code, report) = self.load(arguments);
        let failed = &report["failures_by_kind"];
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{arguments:?}: {failed}");
        let told = count(&report, "/requests") + count(&report, "/warm_up_requests");
        let made = self.logged(words) - before - before_the_run;
        assert!(told > 0 && told == made, "{arguments:?}: {made} were written down: {report}");
    }
}

#[test]
fn samba_counts_match_its_own_log() {
    if !needs_root() {
        return;
    }
    let samba = Samba::start();
    let dn = "CN=u{0..3},CN=Users,DC=lab,DC=test";
    let bind = ["ldap", "--uri", "ldap://127.0.0.1", "--dn", dn, "--password", PASSWORD];
    let bound = ["Auth: [LDAP,simple bind", "status [NT_STATUS_OK]"];
    samba.counted(&bound, 0, &bind);
    samba.counted(&bound, 0, &[&bind[..], &["--connections", "new"]].concat());
    let kdc = ["krb5", "--kdc", "127.0.0.1", "--realm", "LAB.TEST", "--principal", "u{0..3}"];
    let known = [&kdc[..], &["--password", PASSWORD]].concat();
    let logged_in = ["Auth: [Kerberos KDC,ENC-TS Pre-authentication]", "status [NT_STATUS_OK]"];
    samba.counted(&logged_in, 0, &[&known[..], &["--protocol", "tcp"]].concat());
    let tickets = ["--op", "tgs", "--protocol", "tcp", "--service", "host/dc.lab.test"];
    let (code, report) = samba.load(&[&known[..], &tickets].concat());
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{}", report["failures_by_kind"]);
    // A ticket contains the groups of its user. Many groups do not fit into a datagram.
    let admin =
        ["krb5", "--kdc", "127.0.0.1", "--realm", "LAB.TEST", "--principal", "Administrator"];
    let (_, report) = samba.load(&[&admin[..], &["--password", PASSWORD]].concat());
    let too_big = count(&report, "/failures_by_kind/Kerberos 52 KRB_ERR_RESPONSE_TOO_BIG");
    assert!(too_big > 0 && warnings(&report).contains(&"datagram"), "{report}");
    let ask = ["dns", "--server", "127.0.0.1", "--name", "_ldap._tcp.lab.test", "--type", "SRV"];
    let (code, report) = samba.load(&ask);
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{}", report["failures_by_kind"]);
}
