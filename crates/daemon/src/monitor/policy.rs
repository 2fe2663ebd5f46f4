//! The configuration of the bus: who may connect, own which name, and say what to whom.
//!
//! With a user for each role, every role may own its own name only, sends signals of its own
//! interface from its own object only, and calls only what its work needs; root, who is the monitor
//! and the administrator, may call everything. Where all roles are one user there is nothing to
//! tell apart. Users are numbers, and dbus-daemon looks even those up: they must be in /etc/passwd.

use super::users::Users;
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use roster_bus::names::{BACKEND, MONITOR, PUBLISHER, ROLE, Role};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// What may be called of a back-end by the publisher.
const OF_BACKEND: [&str; 6] = ["Fetch", "LookUp", "LookUpAll", "Status", "Rejected", "Refresh"];

/// What may be called of a back-end by the responder to PAM modules.
const OF_BACKEND_BY_PAM: [&str; 4] = ["Authenticate", "Account", "ChangePassword", "SshKeys"];

/// The text of bus.conf; the bus listens at `socket`. Who is among `taken` is still another role's
/// and may do nothing for its own.
pub fn bus_conf(socket: &Path, users: &Users, domains: &[String], taken: &BTreeSet<u32>) -> String {
    let mut text = String::from(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
         <!-- Written by rosterd at every start. Changes are lost. -->\n\
         <busconfig>\n",
    );
    let _ = writeln!(text, "  <listen>unix:path={}</listen>", escaped(socket));
    text.push_str("  <auth>EXTERNAL</auth>\n");
    for (name, value) in LIMITS {
        let _ = writeln!(text, "  <limit name=\"{name}\">{value}</limit>");
    }
    match users {
        Users::Invoking(_) => text.push_str(ONE_USER),
        Users::Separate { .. } => separate(&mut text, users, domains, taken),
    }
    text.push_str("</busconfig>\n");
    text
}

/// Bounds that dbus-daemon would set higher: descriptors travel one at a time, messages are small,
/// and a role that does not read is not waited for.
const LIMITS: [(&str, u64); 12] = [
    ("max_incoming_bytes", 64 << 20),
    ("max_outgoing_bytes", 64 << 20),
    ("max_message_size", MESSAGE_BYTES_MAX),
    ("max_message_unix_fds", 4),
    ("max_incoming_unix_fds", 64),
    ("max_outgoing_unix_fds", 64),
    ("auth_timeout", 5_000),
    ("max_completed_connections", 256),
    ("max_incomplete_connections", 64),
    ("max_connections_per_user", 128),
    ("max_match_rules_per_connection", 256),
    ("max_replies_per_connection", 4_096),
];

/// Only the user who runs the bus, and root, may connect: they may do everything.
const ONE_USER: &str = r#"  <policy context="default">
    <allow user="0"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
"#;

fn separate(text: &mut String, users: &Users, domains: &[String], taken: &BTreeSet<u32>) {
    text.push_str(
        r#"  <policy context="default">
    <deny user="*"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Peer"/>
    <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus" send_member="UpdateActivationEnvironment"/>
    <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus" send_member="ReloadConfig"/>
  </policy>
  <policy user="0">
    <allow own="org.roster.Monitor"/>
    <allow send_type="method_call"/>
    <allow send_type="signal"/>
  </policy>
"#,
    );
    let nss = Role::Responder("nss".into());
    let pam = Role::Responder("pam".into());
    let metrics = Role::Responder("metrics".into());
    let nscd = Role::Responder("nscd".into());
    let mut roles = vec![Role::Publisher, nss.clone(), pam.clone(), metrics.clone(), nscd];
    roles.extend(domains.iter().cloned().map(Role::Backend));
    let mut connect = vec![0];
    let mut rules = String::new();
    for role in &roles {
        let user = users.of(role, domains).filter(|user| !taken.contains(&user.uid));
        let Some(user) = user else { continue };
        connect.push(user.uid);
        let name = role.bus_name();
        let _ = writeln!(rules, "  <policy user=\"{}\">\n    <allow own=\"{name}\"/>", user.uid);
        let mut call = |destination: &Role, interface: &str, member: &str| {
            let _ = writeln!(
                rules,
                "    <allow send_destination=\"{}\" send_interface=\"{interface}\" \
                 send_member=\"{member}\"/>",
                destination.bus_name(),
            );
        };
        match role {
            Role::Publisher => {
                for domain in domains {
                    for member in OF_BACKEND {
                        call(&Role::Backend(domain.clone()), BACKEND, member);
                    }
                }
            }
            role if *role == nss => call(&Role::Publisher, PUBLISHER, "LookUp"),
            role if *role == pam => {
                call(&Role::Publisher, PUBLISHER, "FindUser");
                for domain in domains {
                    for member in OF_BACKEND_BY_PAM {
                        call(&Role::Backend(domain.clone()), BACKEND, member);
                    }
                }
            }
            role if *role == metrics => {
                for other in roles.iter().chain([&Role::Monitor]) {
                    call(other, ROLE, "Metrics");
                }
            }
            _ => {}
        }
        let interface = match role {
            Role::Monitor => Some(MONITOR),
            Role::Publisher => Some(PUBLISHER),
            Role::Backend(_) => Some(BACKEND),
            Role::Responder(_) => None,
        };
        if let Some(interface) = interface {
            let _ = writeln!(
                rules,
                "    <allow send_type=\"signal\" send_path=\"{}\" send_interface=\"{interface}\"/>",
                role.path(),
            );
        }
        rules.push_str("  </policy>\n");
    }
    text.push_str(&rules);
    text.push_str("  <policy context=\"mandatory\">\n");
    for uid in connect {
        let _ = writeln!(text, "    <allow user=\"{uid}\"/>");
    }
    text.push_str("  </policy>\n");
}

/// A path as a value in a D-Bus address.
pub fn escaped(path: &Path) -> String {
    let mut value = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'/' | b'.' => {
                value.push((*byte).into());
            }
            byte => {
                let _ = write!(value, "%{byte:02x}");
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::users::Ids;
    use super::*;

    fn conf(taken: &[u32]) -> String {
        let ids = |id| Ids { uid: id, gid: id };
        let users = Users::Separate {
            bus: ids(901),
            publisher: ids(902),
            responders: [("nss", 903), ("pam", 905), ("metrics", 904), ("nscd", 906)]
                .map(|(name, id)| (name, ids(id)))
                .into(),
            nscd_helper: None,
            backends: vec![ids(910), ids(911)],
            backend_uids: BTreeSet::new(),
        };
        let socket = Path::new("/run/roster/dbus/socket");
        let taken = taken.iter().copied().collect();
        bus_conf(socket, &users, &["lab".into(), "a.b".into()], &taken)
    }

    /// The rules for a uid.
    fn rules(uid: u32) -> Vec<String> {
        let conf = conf(&[]);
        let head = format!("<policy user=\"{uid}\">");
        let blocks = conf.split("  <policy ").map(|block| format!("<policy {block}"));
        let blocks = blocks.filter(|block| block.starts_with(&head));
        let lines = blocks.flat_map(|block| {
            block
                .lines()
                .filter(|line| line.starts_with("    "))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        lines.map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn a_back_end_owns_its_name_sends_its_signals_and_calls_nobody() {
        assert_eq!(
            rules(911),
            [
                "<allow own=\"org.roster.Backend.a_2eb\"/>",
                "<allow send_type=\"signal\" send_path=\"/org/roster/Backend/a_2eb\" \
                 send_interface=\"org.roster.Backend1\"/>",
            ]
        );
    }

    #[test]
    fn the_publisher_fetches_and_the_responder_asks_the_publisher() {
        let publisher = rules(902);
        assert!(
            publisher.contains(
                &"<allow send_destination=\"org.roster.Backend.lab\" \
              send_interface=\"org.roster.Backend1\" send_member=\"Fetch\"/>"
                    .to_owned()
            )
        );
        assert!(!publisher.iter().any(|rule| rule.contains("Confirm") || rule.contains("Role1")));
        let responder = rules(903);
        assert!(
            responder.contains(
                &"<allow send_destination=\"org.roster.Publisher\" \
              send_interface=\"org.roster.Publisher1\" send_member=\"LookUp\"/>"
                    .to_owned()
            )
        );
        assert!(!responder.iter().any(|rule| rule.contains("Backend1") || rule.contains("Stop")));
    }

    #[test]
    fn no_responder_owns_the_name_of_another() {
        let owns = |uid| rules(uid).into_iter().filter(|rule| rule.contains("own=")).collect();
        let nss: Vec<_> = owns(903);
        assert_eq!(nss, ["<allow own=\"org.roster.Responder.nss\"/>"]);
        let metrics: Vec<_> = owns(904);
        assert_eq!(metrics, ["<allow own=\"org.roster.Responder.metrics\"/>"]);
        assert!(!rules(903).iter().any(|rule| rule.contains("Metrics")));
        assert!(!rules(904).iter().any(|rule| rule.contains("LookUp")));
    }

    #[test]
    fn only_the_responder_to_pam_modules_hands_passwords_on() {
        for uid in [902, 903, 904, 910, 911] {
            let rules = rules(uid);
            let handles = |rule: &String| OF_BACKEND_BY_PAM.iter().any(|one| rule.contains(one));
            assert!(!rules.iter().any(handles), "{rules:?}");
        }
        let pam = rules(905);
        assert!(
            pam.iter().any(|rule| rule.contains("Backend.lab") && rule.contains("Authenticate"))
        );
        assert!(!pam.iter().any(|rule| rule.contains("LookUp") || rule.contains("Role1")));
    }

    #[test]
    fn a_user_whose_old_process_still_runs_may_do_nothing() {
        let conf = conf(&[911]);
        assert!(!conf.contains("\"911\"") && !conf.contains("own=\"org.roster.Backend.a_2eb\""));
        assert!(conf.contains("<allow user=\"910\"/>"));
    }

    #[test]
    fn only_root_and_roles_connect() {
        let conf = conf(&[]);
        let (_, mandatory) = conf.split_once("<policy context=\"mandatory\">").unwrap();
        let uids: Vec<_> = mandatory
            .lines()
            .filter_map(|line| line.trim().strip_prefix("<allow user=\"")?.strip_suffix("\"/>"))
            .collect();
        assert_eq!(uids, ["0", "902", "903", "905", "904", "906", "910", "911"]);
        assert!(conf.contains("<deny user=\"*\"/>"));
    }

    #[test]
    fn a_path_with_odd_characters_is_escaped() {
        assert_eq!(escaped(Path::new("/a b/<ü>,x")), "/a%20b/%3c%c3%bc%3e%2cx");
    }
}
