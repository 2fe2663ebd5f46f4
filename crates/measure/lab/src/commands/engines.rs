// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads: makes an engine for each thread from the options. `run_load` makes the runs.

use super::run_load::{LoadJob, LoadTask, PlannedRun, port_warning, print_port_budget, run_load};
use crate::args::{self, CommonArgs, LoadCommand};
use crate::blocking_engine::BlockingEngine;
use crate::coded::{Coded, bail_coded, coded, ensure_coded};
use crate::command::{self, CommandEngine};
use crate::dlopen::nss_module::NssModule;
use crate::dlopen::pam::PamService;
use crate::dns::{self, DnsCodec};
use crate::ephemeral_ports::{PortBudget, PortSettings};
use crate::krb5::crypto::EncType;
use crate::krb5::key_setup::KeySetup;
use crate::krb5::message::KdcRequestKind;
use crate::krb5::{self, Krb5Codec, Krb5Requests as KrbRequest};
use crate::ldap::hash_upgrade_check::HashUpgradeCheck;
use crate::ldap::{self, ConnectionMode, LdapEngine, LdapRequest, TlsMode};
use crate::load_thread::{RunSpec, ThreadShare};
use crate::message_engine::{MessageCodec, MessageEngine, ServerRoute, Transport};
use crate::net::{CloseMode, Route, TlsSettings, resolve};
use crate::nss::{self, NssUser};
use crate::preflight::{LoadTraits, RequestStyle};
use crate::runner::{ThreadPlan, run_threads};
use crate::template::{Template, period};
use anyhow::Result;
use roster_messages::table::lab;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the runs of a load, or its checks.
pub fn run(load: &LoadCommand, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    match load {
        LoadCommand::Ldap(args) => run_ldap(args, task, out),
        LoadCommand::Dns(args) => run_dns(args, task, out),
        LoadCommand::Krb5(args) => run_krb5(args, task, out),
        LoadCommand::Nss(args) => run_nss(args, task, out),
        LoadCommand::Pam(args) => run_pam(args, task, out),
        LoadCommand::Shell(args) => run_command(args, task, out),
    }
}

/// Returns the properties of a load with these variable texts.
fn load_traits<'t>(texts: impl Iterator<Item = &'t Template> + Clone) -> LoadTraits {
    let endless = texts.clone().any(Template::is_endless);
    LoadTraits { period: period(texts), endless, repeats_bytes: None }
}

fn run_ldap(args: &args::LdapArgs, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let (tls_at_once, host, port) = uri(&args.uri)?;
    let target = resolve_option("--uri", &args.uri, &host, port)?;
    let route = route(&args.network, target)?;
    let security = ldap_tls_mode(args, tls_at_once, &host)?;
    let request = ldap_request(args)?;
    let bind = args.bind_dn.clone().zip(args.bind_password.clone());
    let wrong = |why: String| coded(&lab::FILTER_SYNTAX, why);
    // Binds may change the stored hash.
    let hash_check = match &request {
        LdapRequest::Bind(dn, _) => {
            let (route, timeout) = (port_saving_route(&route), args.common.timeout);
            Some(HashUpgradeCheck::new(route, security.clone(), dn.clone(), bind.as_ref(), timeout))
        }
        _ => None,
    };
    let settings = |connections, route: Route| -> Result<Arc<ldap::LdapSettings>> {
        let security = security.clone();
        let made = ldap::LdapSettings::new(route, security, connections, &request, bind.as_ref());
        Ok(Arc::new(made.map_err(wrong)?))
    };
    let sparing = settings(ConnectionMode::Reuse, port_saving_route(&route))?;
    let settings = settings(args.connections, route.clone())?;
    let budget = PortBudget::for_route(&route, PortSettings::from_host());
    let ports = |stage: &PlannedRun| match args.connections {
        ConnectionMode::Reuse => port_warning(budget, stage, 0.0),
        ConnectionMode::New => port_warning(budget, stage, stage.rate_max()),
    };
    if args.connections == ConnectionMode::New {
        print_port_budget(budget, &args.common);
    }
    let values: Vec<&Template> = settings.values().collect();
    let job = LoadJob {
        common: &args.common,
        task,
        threads: 1,
        traits: load_traits(values.into_iter()),
        port_warning: &ports,
        hash_check: hash_check.transpose().map_err(wrong)?,
        startup: None,
    };
    // Threads begin at different source addresses.
    let make = |seat: ThreadShare, manner: RequestStyle| {
        let turn = seat.thread * seat.total_users;
        let settings = if manner.saves_ports { &sparing } else { &settings };
        Ok(LdapEngine::new(Arc::clone(settings), seat.users, turn))
    };
    run_load(job, make, out)
}

/// Returns the TLS mode. `tls_at_once` is true for an ldaps URI.
fn ldap_tls_mode(args: &args::LdapArgs, tls_at_once: bool, host: &str) -> Result<TlsMode> {
    let tls = || TlsSettings::new(host, args.tls_ca.as_deref());
    Ok(match (tls_at_once, args.start_tls) {
        (true, true) => {
            bail_coded!(START_TLS_WITH_LDAPS, "--start-tls: the URI {} already uses TLS", args.uri)
        }
        (true, false) => TlsMode::Ldaps(tls()?),
        (false, true) => TlsMode::StartTls(tls()?),
        (false, false) => TlsMode::Clear,
    })
}

fn ldap_request(args: &args::LdapArgs) -> Result<LdapRequest> {
    let value = || -> Result<(String, Template)> {
        let text = args.value.as_deref().unwrap_or_default();
        let parts = text.split_once('=');
        let (attribute, value) =
            parts.coded(&lab::VALUE_SYNTAX, format_args!("--value {text}: no equals sign"))?;
        let value = value.parse().map_err(|why: String| {
            coded(&lab::TEMPLATE_SYNTAX, format!("--value: {}", why.trim_end_matches('.')))
        })?;
        Ok((attribute.to_owned(), value))
    };
    let dn = args.dn.clone();
    Ok(match args.op {
        ldap::LdapOp::Bind => {
            let password = args.password.clone();
            let text = "--password: missing for --op bind";
            LdapRequest::Bind(dn, password.coded(&lab::PASSWORD_MISSING, text)?)
        }
        ldap::LdapOp::Search => {
            LdapRequest::Search(dn, args.scope, args.filter.clone(), args.attributes.clone())
        }
        ldap::LdapOp::Compare => {
            let (attribute, value) = value()?;
            LdapRequest::Compare(dn, attribute, value)
        }
        ldap::LdapOp::Modify => {
            let (attribute, value) = value()?;
            LdapRequest::Modify(dn, attribute, value)
        }
    })
}

fn run_dns(args: &args::DnsArgs, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let target = resolve_address("--server", &args.server, 53)?;
    // The first name is checked before the run.
    dns::message::write_query(0, &args.name.text(0), args.r#type, &mut Vec::new())
        .map_err(|problem| coded(&lab::DNS_NAME_INVALID, format!("--name: {problem}")))?;
    let way = server_route(&args.network, target, args.protocol, args.connections)?;
    let make = |seat: ThreadShare, manner: RequestStyle| {
        let dns = DnsCodec::new(args.name.clone(), args.r#type);
        Ok(message_engine(&way, dns, seat, manner))
    };
    run_messages(&args.common, &way, task, load_traits([&args.name].into_iter()), make, out)
}

fn server_route(
    network: &args::NetworkArgs,
    target: SocketAddr,
    protocol: Transport,
    connections: ConnectionMode,
) -> Result<ServerRoute> {
    let each_its_own = connections == ConnectionMode::New;
    Ok(ServerRoute { route: route(network, target)?, protocol, socket_per_request: each_its_own })
}

/// Creates an engine. Threads begin at different source addresses.
fn message_engine<D: MessageCodec>(
    way: &ServerRoute,
    dialect: D,
    seat: ThreadShare,
    manner: RequestStyle,
) -> MessageEngine<D> {
    let way = match manner.saves_ports {
        true => {
            ServerRoute { socket_per_request: false, route: port_saving_route(&way.route), ..*way }
        }
        false => way.clone(),
    };
    MessageEngine::new(way, dialect, seat.users, seat.thread * seat.total_users)
}

fn run_messages<D: MessageCodec + Send + 'static>(
    common: &CommonArgs,
    way: &ServerRoute,
    task: LoadTask,
    traits: LoadTraits,
    make: impl Fn(ThreadShare, RequestStyle) -> Result<MessageEngine<D>> + Sync,
    out: &mut dyn Write,
) -> Result<u8> {
    let budget = PortBudget::for_route(&way.route, PortSettings::from_host());
    // A UDP port is free when its socket is closed.
    let holds_ports = way.socket_per_request && way.protocol == Transport::Tcp;
    if holds_ports {
        print_port_budget(budget, common);
    }
    let ports = |stage: &PlannedRun| {
        let rate = if holds_ports { stage.rate_max() } else { 0.0 };
        port_warning(budget, stage, rate)
    };
    run_load(
        LoadJob {
            common,
            task,
            threads: 1,
            traits,
            port_warning: &ports,
            hash_check: None,
            startup: None,
        },
        make,
        out,
    )
}

fn run_krb5(args: &args::Krb5Args, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let target = resolve_address("--kdc", &args.kdc, 88)?;
    let way = server_route(&args.network, target, args.protocol, args.connections)?;
    let kinds = if args.enctype.is_empty() { EncType::ALL.to_vec() } else { args.enctype.clone() };
    let start = SystemTime::now();
    let request = match (&args.password, args.op) {
        (None, KdcRequestKind::Tgs) => {
            bail_coded!(TGS_WITHOUT_PASSWORD, "--op tgs: a login before the run needs --password");
        }
        (None, KdcRequestKind::As) => {
            KrbRequest::plain(&args.realm, &kinds, args.principal.clone(), start)
        }
        (Some(password), op) => {
            let (route, protocol) = (&way.route, args.protocol);
            let (realm, principal) = (args.realm.as_str(), &args.principal);
            let ask = KeySetup { route, protocol, realm, principal, password, kinds: &kinds };
            match op {
                KdcRequestKind::As => KrbRequest::timestamp(realm, &kinds, ask.clients()?, start),
                KdcRequestKind::Tgs => KrbRequest::tgs(realm, &kinds, ask.sessions()?, start),
            }
        }
    };
    let krbtgt = || Template::constant(format!("krbtgt/{}", args.realm).into_bytes());
    let settings = Arc::new(krb5::Krb5Settings {
        service: args.service.clone().unwrap_or_else(krbtgt),
        // The seed differs in each run, so that no run repeats the requests of another.
        seed: start.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64),
        start,
        request,
    });
    let make = |seat: ThreadShare, manner: RequestStyle| {
        let krb5 = Krb5Codec::new(Arc::clone(&settings), manner.same_bytes);
        Ok(message_engine(&way, krb5, seat, manner))
    };
    let texts = [&args.principal].into_iter().chain(&args.password).chain(&args.service);
    let traits = LoadTraits { repeats_bytes: Some(args.same_bytes), ..load_traits(texts) };
    run_messages(&args.common, &way, task, traits, make, out)
}

fn run_nss(args: &args::NssArgs, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let module =
        args.module.as_deref().map(|file| NssModule::load(file, args.lookup)).transpose()?;
    let settings =
        Arc::new(nss::NssSettings { lookup: args.lookup, key: args.key.clone(), module });
    let make = |_: ThreadShare, _| {
        let mut nss = NssUser::new(Arc::clone(&settings));
        Ok(BlockingEngine::new(move |request| nss.lookup(request)))
    };
    // Lookups rarely wait, so more threads than processors would wait for a processor.
    let users = match (args.common.users.as_slice(), &args.common.rate) {
        ([], None) => vec![available_parallelism().map_or(1, |all| all.get() as u32)],
        (users, _) => users.to_vec(),
    };
    let common = CommonArgs { users, ..args.common.clone() };
    run_load(local_job(&common, task, 1, load_traits([&args.key].into_iter())), make, out)
}

/// Returns a load without network connections.
fn local_job(
    common: &CommonArgs,
    task: LoadTask,
    threads: usize,
    traits: LoadTraits,
) -> LoadJob<'_> {
    LoadJob {
        common,
        task,
        threads,
        traits,
        port_warning: &|_| None,
        hash_check: None,
        startup: None,
    }
}

fn run_pam(args: &args::PamArgs, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let pam = PamService::load(&args.service, args.config_folder.as_deref(), &args.steps)?;
    let make = |_: ThreadShare, _| {
        let (pam, user, password) = (pam.clone(), args.user.clone(), args.password.clone());
        Ok(BlockingEngine::new(move |request| {
            pam.login(&user.text(request), &password.text(request))
        }))
    };
    let traits = load_traits([&args.user, &args.password].into_iter());
    run_load(local_job(&args.common, task, 1, traits), make, out)
}

/// Returns the route with resets, which free ports at once.
fn port_saving_route(route: &Route) -> Route {
    Route { close: CloseMode::Reset, ..route.clone() }
}

fn route(network: &args::NetworkArgs, target: SocketAddr) -> Result<Route> {
    let route = Route { target, sources: network.source.clone(), close: network.close };
    ensure_coded!(
        route.sources.iter().all(|source| source.is_ipv4() == target.is_ipv4()),
        SOURCE_FAMILY,
        "--source: the server {} has another address family (IPv4 or IPv6)",
        target.ip()
    );
    Ok(route)
}

/// Resolves the host of an option's value.
pub fn resolve_option(option: &str, value: &str, host: &str, port: u16) -> Result<SocketAddr> {
    let text = format_args!("{option} {value}: cannot resolve {host}");
    resolve(host, port).coded(&lab::HOST_NOT_FOUND, text)
}

/// Resolves an option of the form `HOST:PORT`.
pub fn resolve_address(option: &str, value: &str, default_port: u16) -> Result<SocketAddr> {
    let text = format_args!("{option} {value}: not HOST:PORT");
    let (host, port) = host_and_port(value).coded(&lab::ADDRESS_SYNTAX, text)?;
    resolve_option(option, value, host, port.unwrap_or(default_port))
}

/// Parses `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => match inner.split_once(']')? {
            (host, "") => (host, None),
            (host, behind) => (host, Some(behind.strip_prefix(':')?)),
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    (!host.is_empty() && !host.contains('/')).then_some((host, port))
}

/// Parses `ldap://HOST[:PORT]` into whether it is ldaps, host and port.
pub fn uri(text: &str) -> Result<(bool, String, u16)> {
    let problem = format!("--uri {text}: not an LDAP URI");
    let (scheme, rest) = text.split_once("://").coded(&lab::URI_SYNTAX, &problem)?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "ldap" => false,
        "ldaps" => true,
        _ => bail_coded!(URI_SYNTAX, "{problem}"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = host_and_port(rest).coded(&lab::URI_SYNTAX, &problem)?;
    let port = port.unwrap_or(if is_tls { 636 } else { 389 });
    Ok((is_tls, host.to_owned(), port))
}

fn run_command(args: &args::CommandArgs, task: LoadTask, out: &mut dyn Write) -> Result<u8> {
    let settings = Arc::new(command::CommandSettings::new(&args.command)?);
    let make = |seat: ThreadShare, _| Ok(CommandEngine::new(Arc::clone(&settings), seat.users));
    // The start of a process blocks the thread until exec(2).
    let threads = available_parallelism().map_or(1, usize::from);
    let nothing = Arc::new(command::CommandSettings::nothing()?);
    let startup = |stage: RunSpec, crew: ThreadPlan, stop: &Arc<AtomicBool>| {
        let make = |seat: ThreadShare| Ok(CommandEngine::new(Arc::clone(&nothing), seat.users));
        run_threads(stage, crew, None, stop, make, |_| {})
    };
    let traits = load_traits(args.command.iter());
    let job = LoadJob { startup: Some(&startup), ..local_job(&args.common, task, threads, traits) };
    run_load(job, make, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn ldap_bind_without_password_has_code() {
        let words = ["roster-lab", "ldap", "--uri", "ldap://h", "--dn", "x", "--password", "y"];
        let args::Command::Load(LoadCommand::Ldap(mut args)) =
            args::Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command");
        };
        args.password = None;
        let error = ldap_request(&args).err().unwrap().to_string();
        assert!(error.ends_with(&format!("[{}]", lab::PASSWORD_MISSING.code)), "{error}");
    }

    #[test]
    fn uri_invalid_rejected() {
        for (text, expected) in [
            ("ldap://h", (false, "h", 389)),
            ("LDAPS://h/", (true, "h", 636)),
            ("ldap://h:3890", (false, "h", 3890)),
            ("ldap://[::1]:5", (false, "::1", 5)),
            ("ldaps://[::1]", (true, "::1", 636)),
        ] {
            let (tls, host, port) = uri(text).unwrap();
            assert_eq!((tls, host.as_str(), port), expected, "{text}");
        }
        for text in ["h", "http://h", "ldap://", "ldap://h:x", "ldap://h:99999", "ldap://h/dc=x"] {
            let error = uri(text).unwrap_err().to_string();
            assert!(error.ends_with(&format!("[{}]", lab::URI_SYNTAX.code)), "{error}");
        }
    }
}
