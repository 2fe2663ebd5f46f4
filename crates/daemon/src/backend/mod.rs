//! A back-end: keeps what one domain's directory has, over restarts and while the directory is
//! away, and hands it to the publisher.
//!
//! A provider talks to the directory and reports into the `engine`; a task writes what the engine
//! takes in to the durable cache (`writer`); `object` answers on the bus; `log_in` logs people in, by
//! whoever knows passwords, `offline` while nobody who does can be asked, and `access` by the rules. On demand, `asking` puts
//! questions to the provider and keeps its answers fresh. `absences` decides about entries that a reply
//! lacked. Whether an entry may be served is none of
//! a back-end's business: it hands over whatever the directory says.

mod absences;
mod access;
mod asked;
mod asking;
mod batch;
pub mod deletion;
mod doubts;
mod engine;
mod entries;
mod full_refresh;
mod image;
mod log_in;
mod mending;
mod object;
mod offline;
mod people;
mod references;
mod rejected;
#[cfg(test)]
mod tests;
mod writer;

use crate::hops::Place;
use crate::role::{self, Context, DOMAINS};
use access::{Access, Asked, Ruled};
use anyhow::Context as _;
use asking::Asking;
use engine::{Engine, Settings};
use log_in::{Authority, LogIns};
use object::{Object, tell};
use offline::Offline;
use people::People;
use roster_bus::zbus::object_server::SignalEmitter;
use roster_config::{AuthMethod, Domain, MemberValues, Mode, Provider as Configured};
use roster_provider::files::FilesProvider;
use roster_provider::log_in::Nobody;
use roster_provider::{Provider, Sink};
use roster_provider_krb5::{Helper, Kerberos};
use roster_provider_ldap::{Binds, Ldap};
use std::sync::Arc;
use writer::{Cache, Found};

/// Entries and references that a domain may have; the publisher takes no more.
const NUMBERS_MAX: u32 = 1 << 24;

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(
    mut context: Context<role::Backend>,
    helper: Option<Result<Helper, String>>,
) -> anyhow::Result<()> {
    let role::Backend { domain, secrets } = &context.config;
    let folder = context.state_dir.join(DOMAINS).join(&domain.name);
    let cache = Cache::new(folder, domain);
    let found = tokio::select! {
        found = cache.open() => found.context("cannot open the domain's cache")?,
        () = context.shutdown.wait() => {
            cache.opening_stopped();
            return Ok(());
        }
    };
    let settings = Settings {
        domain: domain.name.clone(),
        mode: domain.mode,
        mass_deletion: domain.mass_deletion,
        has_dn_lists: names_dns(&domain.provider),
        has_name_lists: names_users(&domain.provider),
        has_log_ins: domain.has_log_ins(),
        states_removals: matches!(domain.provider, Configured::Files(_)),
    };
    let Found { store, loaded, why } = found;
    let engine = Engine::new(settings, loaded, store, why);
    let sink: Arc<dyn Sink> = Arc::clone(&engine) as _;
    match &domain.provider {
        Configured::Files(files) => {
            let overrides = domain.overrides.clone();
            let provider = FilesProvider::new(&domain.name, files.clone(), overrides, sink);
            let authority = asked(domain, helper, || Ok(Authority::Nobody(Nobody)))?;
            serve(context, cache, engine, Arc::new(provider), authority, "files").await
        }
        Configured::Ldap(_) => {
            let provider = Arc::new(Ldap::new(domain, secrets, sink)?);
            let authority = asked(domain, helper, || {
                let binds = Binds::new(domain, secrets, Arc::clone(&provider));
                Ok(Authority::Ldap(binds.map_err(anyhow::Error::msg)?))
            })?;
            serve(context, cache, engine, provider, authority, "ldap").await
        }
    }
}

/// Who is asked about passwords; `directory` is, where the directory is.
fn asked(
    domain: &Domain,
    helper: Option<Result<Helper, String>>,
    directory: impl FnOnce() -> anyhow::Result<Authority>,
) -> anyhow::Result<Authority> {
    match (domain.auth.method, &domain.auth.krb5, helper) {
        (AuthMethod::Ldap, ..) => directory(),
        (AuthMethod::Krb5, Some(krb5), Some(helper)) => {
            Ok(Authority::Krb5(Box::new(Kerberos::new(krb5, domain.auth.timeout, helper))))
        }
        (AuthMethod::None | AuthMethod::Krb5, ..) => Ok(Authority::Nobody(Nobody)),
    }
}

fn names_dns(provider: &Configured) -> bool {
    let Configured::Ldap(ldap) = provider else { return false };
    ldap.member_attributes.iter().any(|attribute| attribute.values != MemberValues::Names)
}

fn names_users(provider: &Configured) -> bool {
    let Configured::Ldap(ldap) = provider else { return true };
    ldap.member_attributes.iter().any(|attribute| attribute.values == MemberValues::Names)
}

async fn serve<P: Provider + 'static>(
    mut context: Context<role::Backend>,
    cache: Cache,
    engine: Arc<Engine>,
    provider: Arc<P>,
    authority: Authority,
    provider_name: &'static str,
) -> anyhow::Result<()> {
    let domain = &context.config.domain;
    engine.begin(provider.parts());
    let place = Arc::new(Place::new(&domain.name, provider_name));
    let asking = Arc::new(Asking::new(
        Arc::clone(&engine),
        Arc::clone(&provider),
        Arc::clone(&place),
        domain.mode,
        domain.refresh,
    ));
    if domain.mode == Mode::OnDemand {
        asking.read_by(&provider.reading());
    }
    let (offline, access) = if domain.has_log_ins() {
        let rules = domain.access.clone();
        let has_groups = rules.groups().next().is_some();
        let people = Arc::new(People::new(Arc::clone(&engine), domain.mode, has_groups));
        let folder = context.state_dir.join(DOMAINS).join(&domain.name);
        let kept = domain.auth.offline.clone();
        // Files are there whatever the time is.
        let is_remote = matches!(domain.provider, Configured::Ldap(_));
        let directory = is_remote.then(|| engine.news());
        let offline = Arc::new(Offline::open(&folder, kept, Arc::clone(&people), directory));
        let directory = Asked::new(Arc::clone(&asking), Arc::clone(&provider), domain.mode);
        let ruled = Ruled::new(rules, people, Arc::new(directory), Arc::clone(&offline));
        (offline, Access::Ruled(Box::new(ruled)))
    } else {
        (Arc::new(Offline::none()), Access::Elsewhere)
    };
    let log_ins = Arc::new(LogIns::new(authority, Arc::clone(&offline), access));
    let path = context.role.path();
    let krb5 = domain.auth.krb5.as_ref();
    let unverified = krb5.and_then(|krb5| krb5.unverified(&context.config.secrets.keytab));
    let object = Object::new(
        Arc::clone(&engine),
        Arc::clone(&provider),
        Arc::clone(&asking),
        Arc::clone(&log_ins),
        provider_name,
        place,
        unverified,
    );
    context.connection.object_server().at(path.clone(), object).await?;
    context.ready().await?;

    let emitter = SignalEmitter::new(&context.connection, path)?.into_owned();
    let told = tell::<P>(emitter, &domain.name, engine.epoch(), engine.news());
    let mirrored = async {
        let reason = provider.mirror(engine.cookies()).await;
        // What is in the cache goes on being served.
        tracing::error!("the directory is not followed any more: {reason}");
        engine.offline(&reason);
        std::future::pending::<()>().await;
    };
    let kept_fresh = async {
        match domain.mode {
            Mode::OnDemand => asking.keep_fresh().await,
            Mode::Replicate => std::future::pending().await,
        }
    };
    let read_anew = async {
        match &domain.provider {
            Configured::Ldap(ldap) if domain.mode == Mode::Replicate => {
                full_refresh::keep_reading(&engine, ldap.full_refresh, || provider.refresh()).await;
            }
            _ => std::future::pending().await,
        }
    };
    let absences = asking.absences();
    let stop = context.shutdown.clone();
    let ended = tokio::select! {
        told = told => told.context("cannot signal changes"),
        written = cache.write_behind(&engine, stop) => written,
        () = mirrored => Ok(()),
        () = kept_fresh => Ok(()),
        () = read_anew => Ok(()),
        () = offline.keep() => Ok(()),
        () = absences.keep_checking() => Ok(()),
        () = mending::keep_mending(&engine, provider.as_ref()) => Ok(()),
        () = log_ins.ended() => Err(anyhow::anyhow!("the program by which users log in has ended")),
        () = context.shutdown.wait() => Ok(()),
    };
    let (closed, ()) = tokio::join!(cache.close(&engine), offline.close());
    closed?;
    ended
}
