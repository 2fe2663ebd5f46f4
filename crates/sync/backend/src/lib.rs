// SPDX-License-Identifier: MIT OR Apache-2.0
//! The role `backend`: stores the entries of one domain's directory, across restarts and while the directory is
//! unreachable, and sends them to the publisher.
//!
//! A provider talks to the directory and reports to the `engine`. `cache_writer` writes the reports to the durable
//! cache. `dbus` serves the bus.
//!
//! `auth` logs users in through the directory or the KDC, `offline_auth` while these are unreachable, and `access`
//! applies the access rules. On demand, `on_demand_fetch` sends queries to the provider and refreshes its replies.
//! `absences` decides about entries that a reply lacked.
//!
//! A backend does not decide which entries are served: it sends all that the directory has.

mod absences;
mod access;
mod auth;
mod cache_writer;
mod change_batch;
mod dbus;
mod domain_image;
mod engine;
mod entry_index;
mod full_refresh;
mod interner;
mod key_index;
mod list_reread;
mod offline_auth;
mod on_demand_cache;
mod on_demand_fetch;
mod rejected;
mod role_config;
mod stale_references;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod user_index;

pub use role_config::BackendRoleConfig;
use roster_role::directories::DOMAIN_CACHE_DIR;
use roster_role::usdt_probes::BackendProbe;
use roster_role::{RoleContext, RoleProgram, parent_dirs};

use access::{AccessControl, ProviderDirectory, RuleAccess};
use anyhow::Context as _;
use auth::{DomainAuthenticator, LoginService};
use cache_writer::{CacheWriter, ExistingCache};
use dbus::{BackendObject, send_change_signals};
use engine::{Engine, EngineSettings};
use offline_auth::OfflineAuth;
use on_demand_fetch::OnDemandFetcher;
use roster_auth_krb5::{BindHelperProcess, Krb5Authenticator, Krb5HelperProcess};
use roster_bus::zbus::object_server::SignalEmitter;
use roster_config::{
    AuthMethod, BindMethod, DomainConfig, DomainMode, LdapServer, ListNames, MemberValues,
    ProviderConfig as Configured,
};
use roster_messages::table::{directory, login};
use roster_messages::{CodedError, log};
use roster_provider::authenticator::NoAuthenticator;
use roster_provider::files::FilesProvider;
use roster_provider::reason::Reason;
use roster_provider::{EntrySink, Provider};
#[cfg(feature = "ldap")]
use roster_provider_ldap::{BindAuthenticator, GssapiHelper, LdapProvider, RESOLUTIONS_MAX};
use roster_role::DISK_THREADS_MAX;
use roster_role::launch::Launch;
use roster_sandbox::{NetlinkProtocol, SandboxSpec, TcpAccess};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use user_index::UserIndex;

/// Limit of the entries and references of a domain. The publisher has the same limit.
const NUMBERS_MAX: u32 = 1 << 24;

/// The files provider resolves no host names.
#[cfg(not(feature = "ldap"))]
const RESOLUTIONS_MAX: usize = 0;

/// The role `backend`.
pub struct BackendRole;

impl RoleProgram for BackendRole {
    type Config = BackendRoleConfig;
    /// The Kerberos helper programs.
    type Helper = BackendHelpers;

    const BLOCKING_THREADS_MAX: usize = DISK_THREADS_MAX + RESOLUTIONS_MAX;

    fn watched_files(config: &BackendRoleConfig) -> Vec<&Path> {
        match &config.domain.provider {
            Configured::Files(files) => vec![&files.passwd, &files.group],
            Configured::Ldap(_) => Vec::new(),
        }
    }

    fn sandbox(launch: &Launch<BackendRoleConfig>) -> SandboxSpec {
        let domain = &launch.config.domain;
        let write = vec![launch.state_dir.join(DOMAIN_CACHE_DIR).join(&domain.name)];
        let boot = domain.has_logins().then(|| PathBuf::from(BOOT));
        match &domain.provider {
            Configured::Files(_) => {
                let mut read = parent_dirs(&Self::watched_files(&launch.config));
                read.extend(boot);
                SandboxSpec { read, write, ..SandboxSpec::default() }
            }
            Configured::Ldap(ldap) => {
                let mut read: Vec<_> = RESOLVER.iter().map(PathBuf::from).collect();
                read.extend(boot);
                for server in &ldap.servers {
                    if let LdapServer::Ldapi { path } = server {
                        read.extend(parent_dirs(&[path]));
                    }
                }
                let families = &[libc::AF_INET, libc::AF_INET6];
                let netlink = Some(NetlinkProtocol::Route);
                SandboxSpec { read, write, families, netlink, tcp: TcpAccess::Any, execute: false }
            }
        }
    }

    fn start_helper(launch: &Launch<BackendRoleConfig>) -> anyhow::Result<Self::Helper> {
        let BackendRoleConfig { domain, secrets, .. } = &launch.config;
        let krb5 = domain.auth.krb5.as_ref();
        let gssapi = match &domain.provider {
            Configured::Ldap(ldap) => match &ldap.bind {
                BindMethod::Gssapi(gssapi) => Some(gssapi),
                _ => None,
            },
            Configured::Files(_) => None,
        };
        Ok(BackendHelpers {
            logins: krb5.map(|krb5| Krb5HelperProcess::start(krb5, &secrets.keytab)),
            binds: gssapi.map(|gssapi| BindHelperProcess::start(gssapi, &secrets.bind_keytab)),
        })
    }

    async fn run(
        context: RoleContext<BackendRoleConfig>,
        helpers: Self::Helper,
    ) -> anyhow::Result<()> {
        run(context, helpers).await
    }
}

/// The processes of `roster-krb5`, each with the reason if it does not run. `None` if the domain needs none.
pub struct BackendHelpers {
    logins: Option<Result<Krb5HelperProcess, Reason>>,
    binds: Option<Result<BindHelperProcess, Reason>>,
}

/// Directory of the boot id. The backend counts the age of offline credentials by boots.
const BOOT: &str = "/proc/sys/kernel/random";

/// Directories that the resolver of host names reads, and those of certificate authorities.
const RESOLVER: [&str; 12] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/connman",
    "/run/nscd",
    "/run/avahi-daemon",
    "/var/lib/ca-certificates",
];

async fn run(
    mut context: RoleContext<BackendRoleConfig>,
    helpers: BackendHelpers,
) -> anyhow::Result<()> {
    let BackendHelpers { logins: helper, binds } = helpers;
    let domain = &context.config.domain;
    let folder = context.state_dir.join(DOMAIN_CACHE_DIR).join(&domain.name);
    let cache = CacheWriter::new(folder.clone(), domain);
    let found = tokio::select! {
        found = cache.open() => found.context("cannot open the domain's cache")?,
        () = context.shutdown.wait() => {
            cache.log_opening_stopped();
            return Ok(());
        }
    };
    let settings = EngineSettings {
        domain: domain.name.clone(),
        mode: domain.mode,
        mass_deletion: domain.mass_deletion,
        has_dn_lists: has_dn_lists(&domain.provider),
        has_name_lists: has_name_lists(&domain.provider),
        ignores_case: domain.names.case.ignores_case(),
        has_logins: domain.has_logins(),
        states_removals: matches!(domain.provider, Configured::Files(_)),
    };
    let ExistingCache { store, loaded, fault: why } = found;
    let engine = Engine::new(settings, loaded, store, why);
    let sink: Arc<dyn EntrySink> = Arc::clone(&engine) as _;
    match &domain.provider {
        Configured::Files(files) => {
            let overrides = domain.overrides.clone();
            let provider = FilesProvider::new(&domain.name, files.clone(), overrides, sink);
            let authority = domain_authenticator(domain, helper, || {
                Ok(DomainAuthenticator::Disabled(NoAuthenticator))
            })?;
            let source = Source { provider: Arc::new(provider), name: "files", binds: None };
            serve(context, cache, engine, source, authority).await
        }
        #[cfg(not(feature = "ldap"))]
        Configured::Ldap(_) => {
            drop(binds);
            let text = format!("domain {}: this rosterd is built without LDAP", domain.name);
            Err(CodedError::new(&directory::LDAP_NOT_BUILT, text).into())
        }
        #[cfg(feature = "ldap")]
        Configured::Ldap(_) => {
            let secrets = &context.config.secrets;
            // The processes stay children until this one ends.
            let (binds, _children) = bind_helper(binds);
            let provider = LdapProvider::new(domain, secrets, sink, binds.clone());
            let provider = provider.map_err(|error| setup_failed(domain, error))?;
            let provider = Arc::new(provider.with_state_directory(&folder));
            let authority = domain_authenticator(domain, helper, || {
                let binds = BindAuthenticator::new(domain, secrets, Arc::clone(&provider));
                Ok(DomainAuthenticator::Ldap(binds.map_err(|error| setup_failed(domain, error))?))
            })?;
            let source = Source { provider, name: "ldap", binds };
            serve(context, cache, engine, source, authority).await
        }
    }
}

/// Returns the authenticator of the domain. `directory` makes the one of the directory.
fn domain_authenticator(
    domain: &DomainConfig,
    helper: Option<Result<Krb5HelperProcess, Reason>>,
    directory: impl FnOnce() -> anyhow::Result<DomainAuthenticator>,
) -> anyhow::Result<DomainAuthenticator> {
    match (domain.auth.method, &domain.auth.krb5, helper) {
        (AuthMethod::Ldap, ..) => directory(),
        (AuthMethod::Krb5, Some(krb5), Some(helper)) => Ok(DomainAuthenticator::Krb5(Box::new(
            Krb5Authenticator::new(krb5, domain.auth.timeout, helper),
        ))),
        (AuthMethod::None | AuthMethod::Krb5, ..) => {
            Ok(DomainAuthenticator::Disabled(NoAuthenticator))
        }
    }
}

fn has_dn_lists(provider: &Configured) -> bool {
    let Configured::Ldap(ldap) = provider else { return false };
    ldap.member_attributes.iter().any(|attribute| attribute.values != MemberValues::Names)
}

fn has_name_lists(provider: &Configured) -> bool {
    let Configured::Ldap(ldap) = provider else { return true };
    ldap.member_attributes.iter().any(|attribute| attribute.values == MemberValues::Names)
}

/// Returns the offline logins of a domain, and its access rules. Without logins, other services decide.
fn login_rules<P: Provider + 'static>(
    context: &RoleContext<BackendRoleConfig>,
    engine: &Arc<Engine>,
    provider: &Arc<P>,
    fetcher: &Arc<OnDemandFetcher<P>>,
) -> (Arc<OfflineAuth>, AccessControl) {
    let domain = &context.config.domain;
    if !domain.has_logins() {
        return (Arc::new(OfflineAuth::disabled()), AccessControl::Elsewhere);
    }
    let rules = domain.access.clone();
    let has_groups = rules.groups().next().is_some();
    let users = UserIndex::new(Arc::clone(engine), domain.mode, has_groups);
    let users = Arc::new(users.with_names(ListNames::new(&domain.name, &domain.names)));
    let dir = context.state_dir.join(DOMAIN_CACHE_DIR).join(&domain.name);
    // Local files do not confirm the clock.
    let is_remote = matches!(domain.provider, Configured::Ldap(_));
    let online = is_remote.then(|| engine.subscribe());
    let settings = domain.auth.offline.clone();
    let offline = Arc::new(OfflineAuth::open(&dir, settings, Arc::clone(&users), online));
    let directory = ProviderDirectory::new(Arc::clone(fetcher), Arc::clone(provider), domain.mode);
    let (names, directory) = (context.config.host_names.clone(), Arc::new(directory));
    let access = RuleAccess::new(rules, names, users, directory, Arc::clone(&offline));
    (offline, AccessControl::Rules(Box::new(access)))
}

#[cfg(feature = "ldap")]
fn setup_failed(domain: &DomainConfig, error: impl std::fmt::Display) -> CodedError {
    let text = format!("domain {}: setup failed: {error}", domain.name);
    CodedError::new(&directory::DOMAIN_SETUP_FAILED, text)
}

/// The program that makes binds by this host's key.
#[cfg(feature = "ldap")]
type BindHelper = GssapiHelper;
#[cfg(not(feature = "ldap"))]
type BindHelper = std::convert::Infallible;

/// Returns the client of the program, and its process.
#[cfg(feature = "ldap")]
fn bind_helper(
    helper: Option<Result<BindHelperProcess, Reason>>,
) -> (Option<Arc<BindHelper>>, Option<std::process::Child>) {
    match helper.map(|helper| helper.map(BindHelperProcess::into_parts)) {
        None => (None, None),
        Some(Ok((socket, child))) => (Some(GssapiHelper::new(Ok(socket))), Some(child)),
        Some(Err(why)) => (Some(GssapiHelper::new(Err(why))), None),
    }
}

/// Returns when the program has ended. The monitor then starts this process again, with another one.
#[cfg(feature = "ldap")]
async fn wait_until_ended(binds: Option<&BindHelper>) {
    match binds {
        Some(binds) => binds.ended().await,
        None => std::future::pending().await,
    }
}

#[cfg(not(feature = "ldap"))]
async fn wait_until_ended(_: Option<&BindHelper>) {
    std::future::pending::<()>().await;
}

fn helper_ended() -> anyhow::Error {
    CodedError::new(&login::KRB5_HELPER_ENDED, "roster-krb5 ended unexpectedly").into()
}

/// Follows the directory. After an error that ends this, the entries of the cache are still served.
async fn keep_mirroring(engine: &Engine, provider: &impl Provider) {
    let reason = provider.mirror(engine.cookies()).await;
    log!(ERROR, &directory::FOLLOWING_ENDED, "the directory is no longer tracked: {reason}");
    engine.offline(&reason);
    std::future::pending::<()>().await;
}

/// Reads the whole directory from time to time, if the domain mirrors an LDAP server.
async fn keep_refreshing(engine: &Engine, domain: &DomainConfig, provider: &impl Provider) {
    match &domain.provider {
        Configured::Ldap(ldap) if domain.mode == DomainMode::Replicate => {
            full_refresh::keep_refreshing(engine, ldap.full_refresh, || provider.refresh()).await;
        }
        _ => std::future::pending().await,
    }
}

/// The source of the entries.
struct Source<P> {
    provider: Arc<P>,
    /// The name of the provider.
    name: &'static str,
    /// The program that makes binds by this host's key.
    binds: Option<Arc<BindHelper>>,
}

async fn serve<P: Provider + 'static>(
    mut context: RoleContext<BackendRoleConfig>,
    cache: CacheWriter,
    engine: Arc<Engine>,
    source: Source<P>,
    authority: DomainAuthenticator,
) -> anyhow::Result<()> {
    let Source { provider, name: provider_name, binds } = source;
    let domain = &context.config.domain;
    engine.set_parts(provider.parts());
    let place = Arc::new(BackendProbe::new(&domain.name, provider_name));
    let asking = Arc::new(OnDemandFetcher::new(
        Arc::clone(&engine),
        Arc::clone(&provider),
        Arc::clone(&place),
        domain.mode,
        domain.refresh,
    ));
    if domain.mode == DomainMode::OnDemand {
        asking.set_reading(&provider.source_fingerprint());
    }
    let (offline, access) = login_rules(&context, &engine, &provider, &asking);
    let log_ins = Arc::new(LoginService::new(authority, Arc::clone(&offline), access));
    let path = context.role.path();
    let krb5 = domain.auth.krb5.as_ref();
    let unverified =
        krb5.and_then(|krb5| krb5.verification_problem(&context.config.secrets.keytab));
    let object = BackendObject::new(
        Arc::clone(&engine),
        Arc::clone(&provider),
        Arc::clone(&asking),
        Arc::clone(&log_ins),
        provider_name,
        place,
        unverified,
    );
    context.connection.object_server().at(path.clone(), object).await?;
    context.announce_ready().await?;

    let emitter = SignalEmitter::new(&context.connection, path)?.into_owned();
    let told = send_change_signals::<P>(emitter, &domain.name, engine.epoch(), engine.subscribe());
    let absences = asking.absences();
    let stop = context.shutdown.clone();
    let ended = tokio::select! {
        told = told => told.context("cannot signal changes"),
        written = cache.write_behind(&engine, stop) => written,
        () = keep_mirroring(&engine, provider.as_ref()) => Ok(()),
        () = asking.keep_fresh(), if domain.mode == DomainMode::OnDemand => Ok(()),
        () = keep_refreshing(&engine, domain, provider.as_ref()) => Ok(()),
        () = offline.maintain() => Ok(()),
        () = absences.keep_checking() => Ok(()),
        () = list_reread::keep_rereading(&engine, provider.as_ref()) => Ok(()),
        () = log_ins.wait_until_unusable() => Err(helper_ended()),
        () = wait_until_ended(binds.as_deref()) => Err(helper_ended()),
        () = context.shutdown.wait() => Ok(()),
    };
    let (closed, ()) = tokio::join!(cache.close(&engine), offline.close());
    closed?;
    ended
}
