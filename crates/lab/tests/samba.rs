//! A Samba AD DC, which is LDAP, Kerberos and DNS of one server, in a network namespace of its own, for it
//! listens at ports that cannot be chosen: what is reported is what the server wrote down.

mod common;

use common::{count, read, warnings};
use roster_system_tests::servers::Process;
use roster_system_tests::{needs_root, tool, wait_until};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const PASSWORD: &str = "Passw0rd-of-all";

struct Samba {
    process: Process,
    _folder: TempDir,
}

impl Samba {
    /// A domain with the users `u0` to `u3`.
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let options = [
            "interfaces=lo".to_owned(),
            "bind interfaces only=yes".to_owned(),
            "server services=ldap, cldap, kdc, dns".to_owned(),
            // Simple binds without TLS.
            "ldap server require strong auth=no".to_owned(),
            "dns update command=/bin/true".to_owned(),
            "vfs objects=".to_owned(),
            "log level=1 auth_audit:4 dns:5".to_owned(),
            "max log size=0".to_owned(),
            format!("pid directory={}", path("pid")),
            format!("ncalrpc dir={}", path("ncalrpc")),
        ];
        let mut provision = Command::new(tool("samba-tool", "samba-ad-dc"));
        provision.args(["domain", "provision", "--realm=LAB.TEST", "--domain=LAB"]);
        provision.args(["--server-role=dc", "--dns-backend=SAMBA_INTERNAL", "--host-name=dc"]);
        provision.args(["--host-ip=192.0.2.1", &format!("--adminpass={PASSWORD}")]);
        provision.arg(format!("--targetdir={}", path("")));
        let options = options.map(|option| format!("--option={option}"));
        provision.args(&options);
        succeed(&mut provision);
        fs::create_dir_all(path("pid")).expect("make a folder");
        for number in 0..4 {
            let mut create = Command::new(tool("samba-tool", "samba-ad-dc"));
            create.args(["user", "create", &format!("u{number}"), PASSWORD]);
            create.args(["-H", &path("private/sam.ldb"), "-s", &path("etc/smb.conf")]);
            succeed(&mut create);
        }
        let mut command = Command::new("unshare");
        let start = "ip link set lo up && exec \"$0\" -i --no-process-group --debug-stdout \"$@\"";
        command.args(["--net", "sh", "-c", start]).arg(tool("samba", "samba-ad-dc"));
        // Not all of them stand in the file that provisioning wrote.
        command.arg("-s").arg(path("etc/smb.conf")).args(&options);
        let process = Process::start(&mut command, &folder.path().join("said"));
        let mut samba = Self { process, _folder: folder };
        wait_until(Duration::from_secs(60), "Samba answers", || {
            assert!(samba.process.runs(), "Samba has ended: {}", samba.process.log());
            ["389", "88", "53"].iter().all(|port| samba.listens(port))
        });
        samba
    }

    /// A command in its network.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.process.pid().as_raw_nonzero().to_string();
        command.args(["--net", "--target", &pid, program]);
        command
    }

    fn listens(&self, port: &str) -> bool {
        let told = self.inside("ss").args(["-Hltn", &format!("sport = :{port}")]).output();
        told.is_ok_and(|told| !told.stdout.is_empty())
    }

    /// Lines of its log that have all these words.
    fn logged(&self, words: &[&str]) -> u64 {
        let log = self.process.log();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count() as u64
    }

    fn load(&self, arguments: &[&str]) -> (i32, Value) {
        let mut lab = self.inside(env!("CARGO_BIN_EXE_roster-lab"));
        lab.args(arguments).args(["--duration", "1", "--warm-up", "200ms", "--users", "2"]);
        read(&lab.args(["--json", "-", "--probe", "0"]).output().expect("start roster-lab"))
    }

    /// Loads it, and holds what is told to what it wrote down.
    fn counted(&self, words: &[&str], before_the_run: u64, arguments: &[&str]) {
        let before = self.logged(words);
        let (code, report) = self.load(arguments);
        let failed = &report["failures_by_kind"];
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{arguments:?}: {failed}");
        let told = count(&report, "/requests") + count(&report, "/warm_up_requests");
        let made = self.logged(words) - before - before_the_run;
        assert!(told > 10 && told == made, "{arguments:?}: {made} were written down: {report}");
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        // It ends its own processes.
        self.process.stop();
    }
}

fn succeed(command: &mut Command) {
    let done = command.output().expect("start it");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}

#[test]
fn binds_log_ins_and_queries_are_as_many_as_the_domain_controller_writes_down() {
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
    // Its tickets hold the groups of a user, and those of many groups fit no datagram.
    let admin =
        ["krb5", "--kdc", "127.0.0.1", "--realm", "LAB.TEST", "--principal", "Administrator"];
    let (_, report) = samba.load(&[&admin[..], &["--password", PASSWORD]].concat());
    let too_big = count(&report, "/failures_by_kind/Kerberos 52 KRB_ERR_RESPONSE_TOO_BIG");
    assert!(too_big > 0 && warnings(&report).contains(&"datagram"), "{report}");
    let ask = ["dns", "--server", "127.0.0.1", "--name", "_ldap._tcp.lab.test", "--type", "SRV"];
    let (code, report) = samba.load(&ask);
    assert_eq!((code, count(&report, "/failures")), (0, 0), "{}", report["failures_by_kind"]);
}
