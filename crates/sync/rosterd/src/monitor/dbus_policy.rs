// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of the bus: permissions to connect, to own names, and to send messages. `role_users` assigns the
//! users.
//!
//! If each role has a separate user, a role may own only its own name, and sends signals of its interface only from its
//! own object. It may make only the calls that its work needs. Root, the user of the monitor and the administrator, may
//! call everything. If all roles share one user, these rules cannot distinguish them. The policy has numeric users.
//! dbus-daemon looks even those up, so they must be in /etc/passwd.

use super::role_users::RoleUsers;
use roster_bus::bus_names::{BACKEND, MONITOR, PUBLISHER, ROLE, RoleName, escape_address_value};
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Backend methods that the publisher may call.
const PUBLISHER_BACKEND_CALLS: [&str; 6] =
    ["Fetch", "LookUp", "LookUpAll", "Status", "Rejected", "Refresh"];

/// Backend methods that the PAM responder may call.
const PAM_BACKEND_CALLS: [&str; 4] = ["Authenticate", "Account", "ChangePassword", "SshKeys"];

/// Returns the text of bus.conf. The bus listens at `socket`. A uid in `taken` still has a process of another role. It
/// gets no rights for its new role.
pub fn bus_conf(
    socket: &Path,
    users: &RoleUsers,
    domains: &[String],
    taken: &BTreeSet<u32>,
) -> String {
    let mut text = String::from(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\"\n \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
         <!-- Written by rosterd at every start. Changes are lost. -->\n\
         <busconfig>\n",
    );
    let _ = writeln!(text, "  <listen>unix:path={}</listen>", escape_address_value(socket));
    text.push_str("  <auth>EXTERNAL</auth>\n");
    for (name, value) in LIMITS {
        let _ = writeln!(text, "  <limit name=\"{name}\">{value}</limit>");
    }
    match users {
        RoleUsers::Invoking(_) => text.push_str(SINGLE_USER_POLICY),
        RoleUsers::Separate { .. } => write_role_policies(&mut text, users, domains, taken),
    }
    text.push_str("</busconfig>\n");
    text
}

/// Limits below the defaults of dbus-daemon: descriptors are sent one at a time, messages are small, and a role that
/// does not read delays no other.
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

/// Only the user of the bus, and root, may connect. They may do everything.
const SINGLE_USER_POLICY: &str = r#"  <policy context="default">
    <allow user="0"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
"#;

/// Rules for all users, and for root, the user of the monitor.
const SEPARATE_USERS_POLICY: &str = r#"  <policy context="default">
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
"#;

fn write_role_policies(
    text: &mut String,
    users: &RoleUsers,
    domains: &[String],
    taken: &BTreeSet<u32>,
) {
    text.push_str(SEPARATE_USERS_POLICY);
    let responders = ["nss", "pam", "metrics"].map(|name| RoleName::Responder(name.into()));
    let mut roles = vec![RoleName::Publisher];
    roles.extend(responders);
    roles.extend(domains.iter().cloned().map(RoleName::Backend));
    let mut connect = vec![0];
    for role in &roles {
        let user = users.user_of_role(role, domains).filter(|user| !taken.contains(&user.uid));
        let Some(user) = user else { continue };
        connect.push(user.uid);
        write_role_policy(text, user.uid, role, &permitted_calls(role, &roles, domains));
    }
    text.push_str("  <policy context=\"mandatory\">\n");
    for uid in connect {
        let _ = writeln!(text, "    <allow user=\"{uid}\"/>");
    }
    text.push_str("  </policy>\n");
}

/// A method that a role may call.
struct PermittedCall {
    destination: RoleName,
    interface: &'static str,
    member: &'static str,
}

/// Returns the calls that the work of a role needs.
fn permitted_calls(role: &RoleName, roles: &[RoleName], domains: &[String]) -> Vec<PermittedCall> {
    let call = |destination, interface, member| PermittedCall { destination, interface, member };
    let backends = |members: &'static [&'static str]| {
        domains.iter().flat_map(move |domain| {
            let backend = RoleName::Backend(domain.clone());
            members.iter().map(move |member| call(backend.clone(), BACKEND, *member))
        })
    };
    match role {
        RoleName::Publisher => backends(&PUBLISHER_BACKEND_CALLS).collect(),
        RoleName::Responder(name) => match name.as_str() {
            "nss" => vec![call(RoleName::Publisher, PUBLISHER, "LookUp")],
            "pam" => {
                let find_user = call(RoleName::Publisher, PUBLISHER, "FindUser");
                [find_user].into_iter().chain(backends(&PAM_BACKEND_CALLS)).collect()
            }
            "metrics" => {
                let others = roles.iter().chain([&RoleName::Monitor]);
                others.map(|other| call(other.clone(), ROLE, "Metrics")).collect()
            }
            _ => Vec::new(),
        },
        RoleName::Monitor | RoleName::Backend(_) => Vec::new(),
    }
}

fn write_role_policy(text: &mut String, uid: u32, role: &RoleName, calls: &[PermittedCall]) {
    let name = role.bus_name();
    let _ = writeln!(text, "  <policy user=\"{uid}\">\n    <allow own=\"{name}\"/>");
    for PermittedCall { destination, interface, member } in calls {
        let destination = destination.bus_name();
        let _ = writeln!(
            text,
            "    <allow send_destination=\"{destination}\" send_interface=\"{interface}\" \
             send_member=\"{member}\"/>",
        );
    }
    let interface = match role {
        RoleName::Monitor => Some(MONITOR),
        RoleName::Publisher => Some(PUBLISHER),
        RoleName::Backend(_) => Some(BACKEND),
        RoleName::Responder(_) => None,
    };
    if let Some(interface) = interface {
        let _ = writeln!(
            text,
            "    <allow send_type=\"signal\" send_path=\"{}\" send_interface=\"{interface}\"/>",
            role.path(),
        );
    }
    text.push_str("  </policy>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_role::UserIds;

    fn conf(taken: &[u32]) -> String {
        let ids = |id| UserIds { uid: id, gid: id };
        let users = RoleUsers::Separate {
            bus: ids(901),
            publisher: ids(902),
            responders: [("nss", 903), ("pam", 905), ("metrics", 904)]
                .map(|(name, id)| (name, ids(id)))
                .into(),
            backends: vec![ids(910), ids(911)],
            backend_uids: BTreeSet::new(),
        };
        let socket = Path::new("/run/roster/dbus/socket");
        let taken = taken.iter().copied().collect();
        bus_conf(socket, &users, &["lab".into(), "a.b".into()], &taken)
    }

    /// Returns the rules for a uid.
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
            let handles = |rule: &String| PAM_BACKEND_CALLS.iter().any(|one| rule.contains(one));
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
        assert_eq!(uids, ["0", "902", "903", "905", "904", "910", "911"]);
        assert!(conf.contains("<deny user=\"*\"/>"));
    }
}
