// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binds by the key of a host: a real KDC, slapd and 389 Directory Server with their modules for GSSAPI. Connections
//! without TLS are encrypted by it.

use roster_messages::{Message, table};
use roster_system_tests::rosterd::{LONG_WAIT, OracleSource, SOON};
use roster_system_tests::servers::{Ds389, Kdc, ServerCertificate};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_for,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const HOST: &str = "host/client.lab.test";
const SERVER: &str = "ldap/localhost";

/// A realm with this host and a directory server.
struct Realm {
    kdc: Kdc,
    keytab: PathBuf,
}

impl Realm {
    fn new() -> Self {
        let principals = [HOST, SERVER].map(|name| format!("addprinc -randkey {name}"));
        let kdc = Kdc::start(&principals, "");
        let keytab = kdc.keytab(HOST);
        fs::set_permissions(&keytab, Permissions::from_mode(0o600)).unwrap();
        Self { kdc, keytab }
    }

    /// The variables of a directory server.
    fn variables(&self) -> [(&'static str, std::ffi::OsString); 2] {
        let config = self.keytab.with_file_name("krb5.conf");
        [("KRB5_KTNAME", self.kdc.keytab(SERVER).into()), ("KRB5_CONFIG", config.into())]
    }

    /// A slapd that maps this host to the reader. `lines` are of its configuration.
    fn slapd(&self, schema: Schema, ldif: &str, lines: &str) -> Slapd {
        let mut setup = SlapdOptions::new(schema);
        setup.anonymous = false;
        setup.certificate = Some(ServerCertificate::Good);
        setup.schemas = format!(
            "sasl-host localhost\nsasl-realm LAB.TEST\n\
             authz-regexp \"uid=host/client[^,]*,.*cn=gssapi,cn=auth\" \
             \"cn=reader,dc=example,dc=com\"\n{lines}"
        );
        let mut slapd = Slapd::loaded(setup, ldif);
        for (name, value) in self.variables() {
            slapd.set_variable(name, value);
        }
        slapd.start();
        slapd
    }

    /// A domain that binds by the key of this host.
    fn domain<S: DirectoryServer>(&self, server: &S, uri: &str) -> DomainTable {
        DomainTable::ldap_through("corp", server, &[uri])
            .without("bind_dn")
            .without("bind_password_file")
            .with("bind", "\"gssapi\"")
            .with("krb5_realm", "\"LAB.TEST\"")
            .with("krb5_kdcs", &format!("[{:?}]", self.kdc.address()))
            .with("krb5_keytab", &format!("{:?}", self.keytab))
    }
}

fn clear_uri(port: u16) -> String {
    format!("ldap://localhost:{port}")
}

/// Waits until the status of the domain has this code as the reason why it is offline.
#[track_caller]
fn expect_reason(rosterd: &Rosterd, message: &Message) {
    rosterd.expect_domain_status("corp", "reason_code", message.code);
}

/// Changes the shell of a user, and waits until the host serves it.
#[track_caller]
fn expect_change_is_seen(rosterd: &Rosterd, directory: &LdifBuilder, server: &dyn DirectoryServer) {
    let dn = directory.user_dn("u1");
    let line = rosterd.getent("passwd", "u1").expect("u1 is served");
    let shell = if line.ends_with("/bin/one") { "/bin/two" } else { "/bin/one" };
    server.set(&dn, "loginShell", &[shell]);
    wait_until(LONG_WAIT, "the change is seen", || {
        rosterd.getent("passwd", "u1").is_some_and(|line| line.ends_with(shell))
    });
}

/// Passes bytes on, records those of the server, and can damage them.
struct ByteRelay {
    port: u16,
    received: Arc<Mutex<Vec<u8>>>,
    damages: Arc<AtomicBool>,
}

impl ByteRelay {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Self { port, received: Arc::default(), damages: Arc::default() };
        let (received, damages) = (Arc::clone(&relay.received), Arc::clone(&relay.damages));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let [to_server, to_client] =
                    [&upstream, &client].map(|one| one.try_clone().unwrap());
                thread::spawn(move || pass(client, to_server, |_| ()));
                let (received, damages) = (Arc::clone(&received), Arc::clone(&damages));
                thread::spawn(move || {
                    pass(upstream, to_client, |bytes| {
                        if damages.swap(false, Ordering::Relaxed) {
                            let middle = bytes.len() / 2;
                            bytes[middle] ^= 1;
                        }
                        received.lock().unwrap().extend_from_slice(bytes);
                    });
                });
            }
        });
        relay
    }

    fn has_received(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap();
        received.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn gssapi_mirror_without_tls_is_encrypted() {
    let realm = Realm::new();
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let slapd = realm.slapd(Schema::Rfc2307, &directory.populated(500, 300, 50), "");
    let relay = ByteRelay::to(slapd.port());
    let rosterd = Rosterd::start(&[realm.domain(&slapd, &clear_uri(relay.port))]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    expect_change_is_seen(&rosterd, &directory, &slapd);
    assert!(relay.received.lock().unwrap().len() > 10_000, "the mirror came through the relay");
    for text in ["posixAccount", "memberUid", "uid=u1", "loginShell", "/bin/one"] {
        assert!(!relay.has_received(text), "{text} crossed the network in clear text");
    }
    // A damaged message ends the connection, and nothing of it is served.
    relay.damages.store(true, Ordering::Relaxed);
    expect_change_is_seen(&rosterd, &directory, &slapd);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert!(!relay.damages.load(Ordering::Relaxed), "a message was damaged");
    assert!(rosterd.log().contains(table::directory::CONNECTION_LOST.code), "{}", rosterd.log());
}

#[test]
fn gssapi_over_tls_has_no_second_layer() {
    let realm = Realm::new();
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let slapd = realm.slapd(Schema::Rfc2307bis, &directory.populated(200, 100, 20), "");
    let authority = format!("{:?}", slapd.authority());
    let ldaps = slapd.ldaps_uri().replace("127.0.0.1", "localhost");
    for (uri, start_tls) in [(ldaps, "false"), (clear_uri(slapd.port()), "true")] {
        let domain = realm
            .domain(&slapd, &uri)
            .with("tls_ca", &authority)
            .with("start_tls", start_tls)
            .with("bind_principal", &format!("\"{HOST}@LAB.TEST\""));
        let rosterd = Rosterd::start(&[domain]);
        rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
        expect_change_is_seen(&rosterd, &directory, &slapd);
    }
}

#[test]
fn gssapi_lookups_on_demand_are_answered() {
    let realm = Realm::new();
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let slapd = realm.slapd(Schema::Rfc2307, &directory.populated(50, 20, 5), "");
    let domain = realm.domain(&slapd, &clear_uri(slapd.port())).with("mode", "\"on-demand\"");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.wait_for_snapshot();
    wait_until(SOON, "u7 is found", || rosterd.getent("passwd", "u7").is_some());
    assert_eq!(rosterd.getent("passwd", "nobody-by-that-name"), None);
}

#[test]
fn gssapi_mirror_of_389ds_is_followed() {
    let realm = Realm::new();
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mapping = "dn: cn=roster,cn=mapping,cn=sasl,cn=config\nobjectClass: top\n\
                   objectClass: nsSaslMapping\ncn: roster\n\
                   nsSaslMapRegexString: host/client.*\n\
                   nsSaslMapBaseDNTemplate: cn=reader,dc=example,dc=com\n\
                   nsSaslMapFilterTemplate: (objectclass=*)\nnsSaslMapPriority: 1";
    let server = Ds389::with_sasl(&directory.populated(200, 100, 20), &realm.variables(), mapping);
    let rosterd = Rosterd::start(&[realm.domain(&server, &clear_uri(server.port()))]);
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    expect_change_is_seen(&rosterd, &directory, &server);
}

#[test]
fn gssapi_failure_names_its_cure() {
    use table::{config, directory};
    let mut realm = Realm::new();
    let ldif = LdifBuilder::new(Schema::Rfc2307).populated(20, 5, 3);
    let slapd = realm.slapd(Schema::Rfc2307, &ldif, "");
    let uri = clear_uri(slapd.port());
    let base = realm.domain(&slapd, &uri);
    let missing = realm.keytab.with_file_name("no keytab");
    let garbage = realm.keytab.with_file_name("garbage");
    fs::write(&garbage, b"\x05\x02garbage").unwrap();
    fs::set_permissions(&garbage, Permissions::from_mode(0o600)).unwrap();
    let stale = realm.keytab.with_file_name("stale");
    fs::copy(&realm.keytab, &stale).unwrap();
    let cases = [
        (base.clone().with("krb5_keytab", &format!("{missing:?}")), &config::KEYTAB_MISSING),
        (base.clone().with("krb5_keytab", &format!("{garbage:?}")), &directory::BIND_KEY_MISSING),
        (base.clone().with("bind_principal", "\"host/other\""), &directory::BIND_KEY_MISSING),
        (
            base.clone().with("uris", &format!("[\"ldap://127.0.0.1:{}\"]", slapd.port())),
            &directory::SERVICE_PRINCIPAL_UNKNOWN,
        ),
    ];
    let mut rosterd = Rosterd::prepared(std::slice::from_ref(&base));
    for (domain, message) in cases {
        rosterd.set_domains(&[domain]);
        rosterd.launch();
        expect_reason(&rosterd, message);
        let told = rosterd.roster(&["status"]);
        let text = String::from_utf8_lossy(&told.stdout);
        assert!(told.code == 1 && text.contains(message.code), "{text}");
        rosterd.stop();
    }
    // Another key at the KDC: the old one is of no use, although the file has it.
    realm.kdc.kadmin(&[format!("cpw -randkey {HOST}")]);
    rosterd.set_domains(&[base.clone().with("krb5_keytab", &format!("{stale:?}"))]);
    rosterd.launch();
    expect_reason(&rosterd, &directory::BIND_KEY_OUTDATED);
    // The daemon finds the new key, without a reload.
    fs::copy(realm.kdc.keytab(HOST), &stale).unwrap();
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.stop();
    realm.kdc.kadmin(&[format!("modprinc -allow_tix {HOST}")]);
    rosterd.launch();
    expect_reason(&rosterd, &directory::BIND_PRINCIPAL_UNKNOWN);
    realm.kdc.kadmin(&[format!("modprinc +allow_tix {HOST}")]);
    rosterd.expect_domain_status("corp", "online", true);
    rosterd.stop();
    // The KDC has a new key of the server, and the server has the old one.
    realm.kdc.kadmin(&[format!("cpw -randkey {SERVER}")]);
    rosterd.launch();
    expect_reason(&rosterd, &directory::GSSAPI_BIND_REJECTED);
    rosterd.stop();
    realm.kdc.stop();
    rosterd.launch();
    expect_reason(&rosterd, &directory::BIND_KDC_UNREACHABLE);
}

#[test]
fn gssapi_server_without_suitable_layer_is_refused() {
    use table::directory;
    let realm = Realm::new();
    let ldif = LdifBuilder::new(Schema::Rfc2307).populated(20, 5, 3);
    let slapd = realm.slapd(Schema::Rfc2307, &ldif, "sasl-secprops maxssf=0,noanonymous\n");
    let rosterd = Rosterd::start(&[realm.domain(&slapd, &clear_uri(slapd.port()))]);
    expect_reason(&rosterd, &directory::GSSAPI_WITHOUT_ENCRYPTION);
    drop((rosterd, slapd));
    // More than TLS and no layer give.
    let slapd = realm.slapd(Schema::Rfc2307, &ldif, "sasl-secprops minssf=500,noanonymous\n");
    let domain = realm
        .domain(&slapd, &slapd.ldaps_uri().replace("127.0.0.1", "localhost"))
        .with("tls_ca", &format!("{:?}", slapd.authority()));
    let rosterd = Rosterd::start(&[domain]);
    expect_reason(&rosterd, &directory::GSSAPI_LAYER_BELOW_TLS);
}

/// Returns the children of a process with this word in their command lines.
fn children(pid: Pid, word: &str) -> Vec<Pid> {
    let raw = pid.as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{raw}/task/{raw}/children")).unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|found| found == word.as_bytes())
    })
    .collect()
}

/// Killed processes are lost connections. The mirror never serves a wrong entry meanwhile, and is whole afterwards.
#[test]
fn gssapi_killed_helpers_are_lost_connections() {
    let realm = Realm::new();
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let slapd = realm.slapd(Schema::Rfc2307, &directory.populated(2000, 1000, 100), "");
    let rosterd = Rosterd::start(&[realm.domain(&slapd, &clear_uri(slapd.port()))]);
    let (mut processes, mut programs) = (0, 0);
    wait_until(LONG_WAIT, "enough processes were killed", || {
        let Some(backend) = rosterd.role("backend:corp") else { return false };
        for program in children(backend, "bind") {
            for process in children(program, "bind") {
                processes += usize::from(kill_process(process, Signal::KILL).is_ok());
            }
            if processes >= 10 * (programs + 1) {
                programs += usize::from(kill_process(program, Signal::KILL).is_ok());
            }
        }
        processes >= 30 && programs >= 2
    });
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let domain = rosterd.domain("corp").expect("a status");
    assert_eq!(domain["pending_removals"], 0, "{domain}");
    // Also while it follows changes.
    for _ in 0..3 {
        let backend = rosterd.wait_for_role("backend:corp");
        for program in children(backend, "bind") {
            for process in children(program, "bind") {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        expect_change_is_seen(&rosterd, &directory, &slapd);
    }
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    wait_for(SOON, || match rosterd.log().contains(table::login::KRB5_HELPER_ENDED.code) {
        true => Ok(()),
        false => Err(rosterd.log()),
    });
}

/// A ticket of a minute: the connection is replaced before it ends.
#[test]
fn gssapi_short_ticket_gets_another_connection() {
    let realm = Realm::new();
    realm.kdc.kadmin(&[format!("modprinc -maxlife \"20 seconds\" {HOST}")]);
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let slapd = realm.slapd(Schema::Rfc2307, &directory.populated(20, 5, 3), "");
    let rosterd = Rosterd::start(&[realm.domain(&slapd, &clear_uri(slapd.port()))]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    wait_until(LONG_WAIT, "another connection", || {
        rosterd.log().contains("the Kerberos ticket of this one ends soon")
    });
    expect_change_is_seen(&rosterd, &directory, &slapd);
    assert!(!rosterd.log().contains(table::directory::CONNECTION_LOST.code), "{}", rosterd.log());
}

#[test]
fn gssapi_user_passwords_keep_their_rules() {
    let realm = Realm::new();
    let slapd =
        realm.slapd(Schema::Rfc2307, &LdifBuilder::new(Schema::Rfc2307).populated(20, 5, 3), "");
    let rosterd = Rosterd::prepared(&[realm
        .domain(&slapd, "ldap://ldap1.lab.test")
        .with("auth", "\"ldap\"")]);
    let done = rosterd.roster(&["check-config", rosterd.config().to_str().unwrap()]);
    assert_ne!(done.code, 0);
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    assert!(said.contains(table::config::CLEAR_USER_PASSWORDS.code), "{said}");
}
