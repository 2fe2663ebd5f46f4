// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the role with a bus.

use super::on_demand::Played;
use super::*;
use crate::dbus::send_change_signals;
use crate::testing::wait_until;
use crate::{BackendHelpers, BackendRole, BackendRoleConfig};
use roster_bus::bus_names::RoleName;
use roster_bus::zbus::object_server::SignalEmitter;
use roster_config::DomainSecrets;
use roster_role::testing::TestBus;
use roster_role::{RoleContext, RoleProgram as _, Shutdown};
use roster_system_tests::LoggedCodes;

#[tokio::test]
async fn online_at_lower_server_is_logged() {
    let folder = tempfile::tempdir().expect("a directory");
    let bus = TestBus::start(folder.path(), TestBus::OPEN);
    let connection = bus.connect().await;
    let emitter = SignalEmitter::new(&connection, "/test").expect("a path").into_owned();
    let engine = engine(DomainMode::Replicate);
    engine.online("ldap://second", Some(&because("ldap://first: cannot connect")));
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    tokio::select! {
        ended = send_change_signals::<Played>(emitter, "corp", 1, engine.subscribe()) => {
            panic!("the signals end: {ended:?}")
        }
        () = wait_until("it is logged", || {
            logged.has(directory::SERVERS_PASSED_OVER.code)
        }) => {}
    }
}

#[cfg(feature = "ldap")]
#[tokio::test]
async fn setup_without_bind_password_has_code() {
    let folder = tempfile::tempdir().expect("a directory");
    let bus = TestBus::start(folder.path(), TestBus::OPEN);
    let text = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\n\
                uris = ['ldaps://ldap.example.com']\nbase = 'dc=example,dc=com'\n\
                bind_dn = 'cn=reader,dc=example,dc=com'\nbind_password_file = '/password'\n";
    let domain = roster_config::parse(text).expect("valid").config.domains.remove(0);
    // The monitor sends the content of the file, which is missing here.
    let config =
        BackendRoleConfig { domain, secrets: DomainSecrets::default(), host_names: Vec::new() };
    let (_stop, shutdown) = Shutdown::new();
    let context = RoleContext {
        role: RoleName::Backend("corp".into()),
        config,
        state_dir: folder.path().into(),
        run_dir: folder.path().into(),
        connection: bus.connect().await,
        listener: None,
        shutdown,
    };
    let helpers = BackendHelpers { logins: None, binds: None };
    let error = BackendRole::run(context, helpers).await.expect_err("the password is missing");
    let code = error.downcast_ref::<CodedError>().map(|error| error.message);
    assert_eq!(code, Some(&directory::DOMAIN_SETUP_FAILED), "{error:#}");
}
