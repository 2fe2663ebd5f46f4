//! Loads: what was asked for becomes an engine for each thread.

use super::session::{Job, Planned, Task, carry, of_ports, tell_ports};
use crate::blocking::Blocking;
use crate::cli::{self, Common, Load};
use crate::command::{self, Commands};
use crate::dns::{self, Dns};
use crate::exchange::{Dialect, Exchange, Protocol, Way};
use crate::foreign::module::Module;
use crate::foreign::pam::Pam;
use crate::krb5::crypto::Kind;
use crate::krb5::login::Ask;
use crate::krb5::message::Op;
use crate::krb5::{self, Krb5, Request as KrbRequest};
use crate::ldap::look::Look;
use crate::ldap::{self, Connections, Ldap, Request, Security};
use crate::net::{Close, Route, Tls, resolve};
use crate::nss::{self, Nss};
use crate::ports::{Budget, Kernel};
use crate::probes::{Manner, Traits};
use crate::run::{Crew, carry_out};
use crate::template::{Template, period};
use crate::worker::{Seat, Stage};
use anyhow::{Context, Result, anyhow, ensure};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

/// Carries a load out, or checks it.
pub fn run(load: &Load, task: Task, out: &mut dyn Write) -> Result<u8> {
    match load {
        Load::Ldap(args) => run_ldap(args, task, out),
        Load::Dns(args) => run_dns(args, task, out),
        Load::Krb5(args) => run_krb5(args, task, out),
        Load::Nss(args) => run_nss(args, task, out),
        Load::Pam(args) => run_pam(args, task, out),
        Load::Shell(args) => run_command(args, task, out),
    }
}

/// What varies among these.
fn traits<'t>(texts: impl Iterator<Item = &'t Template> + Clone) -> Traits {
    let endless = texts.clone().any(Template::is_endless);
    Traits { period: period(texts), endless, repeats_bytes: None }
}

fn run_ldap(args: &cli::Ldap, task: Task, out: &mut dyn Write) -> Result<u8> {
    let (tls_at_once, host, port) = uri(&args.uri)?;
    let target =
        resolve(&host, port).with_context(|| format!("--uri {}: cannot find {host}", args.uri))?;
    let route = route(&args.network, target)?;
    let tls = || Tls::new(&host, args.tls_ca.as_deref());
    let security = match (tls_at_once, args.start_tls) {
        (true, true) => return Err(anyhow!("--start-tls: ldaps:// has TLS from the first byte")),
        (true, false) => Security::Ldaps(tls()?),
        (false, true) => Security::StartTls(tls()?),
        (false, false) => Security::Clear,
    };
    let value = |name: &str| -> Result<(String, Template)> {
        let text = args.value.as_deref().unwrap_or_default();
        let (attribute, value) =
            text.split_once('=').with_context(|| format!("{name}: write ATTRIBUTE=VALUE"))?;
        Ok((attribute.to_owned(), value.parse().map_err(|why| anyhow!("{name}: {why}"))?))
    };
    let dn = args.dn.clone();
    let request = match args.op {
        ldap::Op::Bind => {
            Request::Bind(dn, args.password.clone().context("--password is missing")?)
        }
        ldap::Op::Search => {
            Request::Search(dn, args.scope, args.filter.clone(), args.attributes.clone())
        }
        ldap::Op::Compare => {
            let (attribute, value) = value("--value")?;
            Request::Compare(dn, attribute, value)
        }
        ldap::Op::Modify => {
            let (attribute, value) = value("--value")?;
            Request::Modify(dn, attribute, value)
        }
    };
    let bind = args.bind_dn.clone().zip(args.bind_password.clone());
    // What binds leave behind is looked at.
    let entry = match &request {
        Request::Bind(dn, _) => Some(dn.clone()),
        _ => None,
    };
    let wrong = |why: String| anyhow!("{why}");
    let look = entry.map(|dn| {
        let timeout = args.common.timeout;
        Look::new(sparing_ports(&route), security.clone(), dn, bind.as_ref(), timeout)
            .map_err(wrong)
    });
    let settings = |connections, route: Route| -> Result<Arc<ldap::Settings>> {
        let security = security.clone();
        let made = ldap::Settings::new(route, security, connections, &request, bind.as_ref());
        Ok(Arc::new(made.map_err(wrong)?))
    };
    let sparing = settings(Connections::Reuse, sparing_ports(&route))?;
    let settings = settings(args.connections, route.clone())?;
    let budget = Budget::of(&route, Kernel::of_this_host());
    let ports = |stage: &Planned| match args.connections {
        Connections::Reuse => of_ports(budget, stage, 0.0),
        Connections::New => of_ports(budget, stage, stage.rate_max()),
    };
    if args.connections == Connections::New {
        tell_ports(budget, &args.common);
    }
    let values: Vec<&Template> = settings.values().collect();
    let job = Job {
        common: &args.common,
        task,
        threads: 1,
        traits: traits(values.into_iter()),
        ports: &ports,
        look: look.transpose()?,
        startup: None,
    };
    // Users of different threads begin at different source addresses.
    let make = |seat: Seat, manner: Manner| {
        let turn = seat.thread * seat.users_in_all;
        let settings = if manner.spares_ports { &sparing } else { &settings };
        Ok(Ldap::new(Arc::clone(settings), seat.users, turn))
    };
    carry(job, make, out)
}

fn run_dns(args: &cli::Dns, task: Task, out: &mut dyn Write) -> Result<u8> {
    let form = || format!("--server {}: write HOST:PORT", args.server);
    let (host, port) = host_and_port(&args.server).with_context(form)?;
    let target = resolve(host, port.unwrap_or(53))
        .with_context(|| format!("--server {}: cannot find {host}", args.server))?;
    // One of all, so that a slip is said before the run.
    dns::message::write_query(0, &args.name.text(0), args.r#type, &mut Vec::new())
        .map_err(|what| anyhow!("--name: {what}"))?;
    let way = way(&args.network, target, args.protocol, args.connections)?;
    let make = |seat: Seat, manner: Manner| {
        let dns = Dns::new(args.name.clone(), args.r#type);
        Ok(exchange(&way, dns, seat, manner))
    };
    carry_exchange(&args.common, &way, task, traits([&args.name].into_iter()), make, out)
}

fn way(
    network: &cli::Network,
    target: SocketAddr,
    protocol: Protocol,
    connections: Connections,
) -> Result<Way> {
    let each_its_own = connections == Connections::New;
    Ok(Way { route: route(network, target)?, protocol, each_its_own })
}

/// Users of different threads begin at different source addresses.
fn exchange<D: Dialect>(way: &Way, dialect: D, seat: Seat, manner: Manner) -> Exchange<D> {
    let way = match manner.spares_ports {
        true => Way { each_its_own: false, route: sparing_ports(&way.route), ..*way },
        false => way.clone(),
    };
    Exchange::new(way, dialect, seat.users, seat.thread * seat.users_in_all)
}

fn carry_exchange<D: Dialect + Send + 'static>(
    common: &Common,
    way: &Way,
    task: Task,
    traits: Traits,
    make: impl Fn(Seat, Manner) -> Result<Exchange<D>> + Sync,
    out: &mut dyn Write,
) -> Result<u8> {
    let budget = Budget::of(&way.route, Kernel::of_this_host());
    // A datagram's port is free as soon as its socket is closed.
    let holds_ports = way.each_its_own && way.protocol == Protocol::Tcp;
    if holds_ports {
        tell_ports(budget, common);
    }
    let ports = |stage: &Planned| {
        let rate = if holds_ports { stage.rate_max() } else { 0.0 };
        of_ports(budget, stage, rate)
    };
    carry(
        Job { common, task, threads: 1, traits, ports: &ports, look: None, startup: None },
        make,
        out,
    )
}

fn run_krb5(args: &cli::Krb5, task: Task, out: &mut dyn Write) -> Result<u8> {
    let form = || format!("--kdc {}: write HOST:PORT", args.kdc);
    let (host, port) = host_and_port(&args.kdc).with_context(form)?;
    let target = resolve(host, port.unwrap_or(88))
        .with_context(|| format!("--kdc {}: cannot find {host}", args.kdc))?;
    let way = way(&args.network, target, args.protocol, args.connections)?;
    let kinds = if args.enctype.is_empty() { Kind::ALL.to_vec() } else { args.enctype.clone() };
    let start = SystemTime::now();
    let request = match (&args.password, args.op) {
        (None, Op::Tgs) => return Err(anyhow!("--op tgs: logs in first, and needs --password")),
        (None, Op::As) => KrbRequest::plain(&args.realm, &kinds, args.principal.clone(), start),
        (Some(password), op) => {
            let (route, protocol) = (&way.route, args.protocol);
            let (realm, principal) = (args.realm.as_str(), &args.principal);
            let ask = Ask { route, protocol, realm, principal, password, kinds: &kinds };
            match op {
                Op::As => KrbRequest::timestamp(realm, &kinds, ask.clients()?, start),
                Op::Tgs => KrbRequest::tgs(realm, &kinds, ask.sessions()?, start),
            }
        }
    };
    let krbtgt = || Template::constant(format!("krbtgt/{}", args.realm).into_bytes());
    let settings = Arc::new(krb5::Settings {
        service: args.service.clone().unwrap_or_else(krbtgt),
        // Another for each run: what one asked, the next does not ask again.
        seed: start.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64),
        start,
        request,
    });
    let make = |seat: Seat, manner: Manner| {
        let krb5 = Krb5::new(Arc::clone(&settings), manner.same_bytes);
        Ok(exchange(&way, krb5, seat, manner))
    };
    let texts = [&args.principal].into_iter().chain(&args.password).chain(&args.service);
    let traits = Traits { repeats_bytes: Some(args.same_bytes), ..traits(texts) };
    carry_exchange(&args.common, &way, task, traits, make, out)
}

fn run_nss(args: &cli::Nss, task: Task, out: &mut dyn Write) -> Result<u8> {
    let module = args.module.as_deref().map(|file| Module::load(file, args.lookup)).transpose()?;
    let settings = Arc::new(nss::Settings { lookup: args.lookup, key: args.key.clone(), module });
    let make = |_: Seat, _| {
        let mut nss = Nss::new(Arc::clone(&settings));
        Ok(Blocking::new(move |request| nss.look_up(request)))
    };
    // Look-ups wait for nobody as a rule: more threads than processors would wait for these.
    let users = match (args.common.users.as_slice(), &args.common.rate) {
        ([], None) => vec![available_parallelism().map_or(1, |all| all.get() as u32)],
        (users, _) => users.to_vec(),
    };
    let common = Common { users, ..args.common.clone() };
    carry(local(&common, task, 1, traits([&args.key].into_iter())), make, out)
}

/// A load that goes over no network.
fn local(common: &Common, task: Task, threads: usize, traits: Traits) -> Job<'_> {
    Job { common, task, threads, traits, ports: &|_| None, look: None, startup: None }
}

fn run_pam(args: &cli::Pam, task: Task, out: &mut dyn Write) -> Result<u8> {
    let pam = Pam::load(&args.service, args.config_folder.as_deref(), &args.steps)?;
    let make = |_: Seat, _| {
        let (pam, user, password) = (pam.clone(), args.user.clone(), args.password.clone());
        Ok(Blocking::new(move |request| pam.log_in(&user.text(request), &password.text(request))))
    };
    let traits = traits([&args.user, &args.password].into_iter());
    carry(local(&args.common, task, 1, traits), make, out)
}

/// The same to and from, for connections whose ports are wanted again at once.
fn sparing_ports(route: &Route) -> Route {
    Route { close: Close::Reset, ..route.clone() }
}

fn route(network: &cli::Network, target: SocketAddr) -> Result<Route> {
    let route = Route { target, sources: network.source.clone(), close: network.close };
    ensure!(
        route.sources.iter().all(|source| source.is_ipv4() == target.is_ipv4()),
        "--source: {} can be reached only from addresses of its own kind (IPv4 or IPv6)",
        target.ip()
    );
    Ok(route)
}

/// `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
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

/// `ldap://HOST[:PORT]`: whether it is ldaps, host and port.
pub fn uri(text: &str) -> Result<(bool, String, u16)> {
    let form = || format!("--uri {text}: write ldap://HOST:PORT or ldaps://HOST:PORT");
    let (scheme, rest) = text.split_once("://").with_context(form)?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "ldap" => false,
        "ldaps" => true,
        _ => return Err(anyhow!(form())),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = host_and_port(rest).with_context(form)?;
    let port = port.unwrap_or(if is_tls { 636 } else { 389 });
    Ok((is_tls, host.to_owned(), port))
}

fn run_command(args: &cli::Shell, task: Task, out: &mut dyn Write) -> Result<u8> {
    let settings = Arc::new(command::Settings::new(&args.command)?);
    let make = |seat: Seat, _| Ok(Commands::new(Arc::clone(&settings), seat.users));
    // Starting a process blocks a thread until the process has become the program.
    let threads = available_parallelism().map_or(1, usize::from);
    let nothing = Arc::new(command::Settings::nothing()?);
    let startup = |stage: Stage, crew: Crew, stop: &Arc<AtomicBool>| {
        let make = |seat: Seat| Ok(Commands::new(Arc::clone(&nothing), seat.users));
        carry_out(stage, crew, None, stop, make, |_| {})
    };
    let traits = traits(args.command.iter());
    let job = Job { startup: Some(&startup), ..local(&args.common, task, threads, traits) };
    carry(job, make, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_host_and_port_or_is_refused() {
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
            assert!(uri(text).unwrap_err().to_string().contains("write ldap://"), "{text}");
        }
    }
}
