//! From what was typed to reports: which runs are made, in which order, and what is written of them.

use crate::blocking::Blocking;
use crate::cli::{self, Cli, Common};
use crate::command::{self, Commands};
use crate::dns::{self, Dns};
use crate::exchange::{Dialect, Exchange, Protocol, Way};
use crate::foreign::module::Module;
use crate::foreign::pam::Pam;
use crate::krb5::crypto::Kind;
use crate::krb5::login::Ask;
use crate::krb5::message::Op;
use crate::krb5::{self, Krb5, Request as KrbRequest};
use crate::ldap::{self, Connections, Ldap, Request, Security};
use crate::net::{Route, Tls, resolve};
use crate::nss::{self, Nss};
use crate::ports::{Budget, Kernel};
use crate::recorder::Recorder;
use crate::report::{self, Figures, Host, Knee, Origin, PORT_CURES, Report, Warning, text};
use crate::run::{Crew, Outcome, carry_out};
use crate::schedule::{Load, Pace, Rate, knee};
use crate::server::Server;
use crate::template::Template;
use crate::view::View;
use crate::worker::{Engine, Seat, Stage};
use crate::{pages, plan};
use anyhow::{Context, Result, anyhow, ensure};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Map, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// It could not be run, or nothing was answered; it has been said.
const FAILED: u8 = 1;
/// Ended by Ctrl-C, as shells tell it.
const INTERRUPTED: u8 = 130;
/// Requests at a time that nobody asked for.
const USERS: u32 = 16;
const USERS_OPEN: u32 = 64;
/// Descriptors that are not users'.
const SPARE_DESCRIPTORS: u64 = 64;
/// Runs of one curve.
const STAGES_MAX: usize = 100;

/// The program.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = Cli::from_arg_matches(&matches)
        .map_err(|error| error.exit())
        .and_then(|cli| run(&cli, &matches, &mut out))
        .and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => ExitCode::from(code),
        // Whoever reads us has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            say(&format!("roster-lab: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// A line on standard error; where that is full or broken, nobody is left to tell.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn run(cli: &Cli, matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    match &cli.command {
        cli::Command::Ldap(args) => run_ldap(args, options(matches), out),
        cli::Command::Dns(args) => run_dns(args, options(matches), out),
        cli::Command::Krb5(args) => run_krb5(args, options(matches), out),
        cli::Command::Nss(args) => run_nss(args, options(matches), out),
        cli::Command::Pam(args) => run_pam(args, options(matches), out),
        cli::Command::Shell(args) => run_command(args, options(matches), out),
        cli::Command::Run(args) => {
            let (cli, matches) = plan::read(&args.plan, &args.options)?;
            run(&cli, &matches, out)
        }
        cli::Command::Man(args) => pages::write_man_pages(&args.folder, out).map(|()| 0),
        cli::Command::Completions(args) => pages::write_completions(args.shell, out).map(|()| 0),
    }
}

/// The options as they were given or left, for the report; passwords that stand in them are left out.
fn options(matches: &ArgMatches) -> Value {
    let mut plan = Map::new();
    if let Some((name, given)) = matches.subcommand() {
        let program = Cli::command();
        let known =
            program.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
        plan.insert("load".to_owned(), name.into());
        for arg in known {
            let Ok(Some(values)) = given.try_get_raw(arg.get_id().as_str()) else { continue };
            let is_secret = arg.get_id().as_str().contains("password");
            let values = values.map(|value| value.to_string_lossy().into_owned());
            let shown = |value: String| {
                if is_secret && !value.starts_with('@') { "(left out)".to_owned() } else { value }
            };
            let values: Vec<Value> = values.map(|value| shown(value).into()).collect();
            let key = arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned();
            let is_list = arg.get_value_delimiter().is_some() || arg.get_long().is_none();
            let value = match (values.as_slice(), is_list) {
                ([one], false) => one.clone(),
                _ => Value::Array(values),
            };
            plan.insert(key, value);
        }
    }
    Value::Object(plan)
}

fn run_ldap(args: &cli::Ldap, options: Value, out: &mut dyn Write) -> Result<u8> {
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
    let settings =
        ldap::Settings::new(route.clone(), security, args.connections, &request, bind.as_ref());
    let settings = Arc::new(settings.map_err(|why| anyhow!("{why}"))?);
    let budget = Budget::of(&route, Kernel::of_this_host());
    let ports = |stage: &Planned| match args.connections {
        Connections::Reuse => of_ports(budget, stage, 0.0),
        Connections::New => of_ports(budget, stage, stage.rate_max()),
    };
    if args.connections == Connections::New {
        tell_ports(budget, &args.common);
    }
    // Users of different threads begin at different source addresses.
    let make = |seat: Seat| {
        let turn = seat.thread * seat.users_in_all;
        Ok(Ldap::new(Arc::clone(&settings), seat.users, turn))
    };
    load(&args.common, 1, options, make, ports, out)
}

fn run_dns(args: &cli::Dns, options: Value, out: &mut dyn Write) -> Result<u8> {
    let form = || format!("--server {}: write HOST:PORT", args.server);
    let (host, port) = host_and_port(&args.server).with_context(form)?;
    let target = resolve(host, port.unwrap_or(53))
        .with_context(|| format!("--server {}: cannot find {host}", args.server))?;
    // One of all, so that a slip is said before the run.
    dns::message::write_query(0, &args.name.text(0), args.r#type, &mut Vec::new())
        .map_err(|what| anyhow!("--name: {what}"))?;
    let way = way(&args.network, target, args.protocol, args.connections)?;
    let make = |seat: Seat| {
        let dns = Dns::new(args.name.clone(), args.r#type);
        Ok(exchange(&way, dns, seat))
    };
    load_exchange(&args.common, &way, options, make, out)
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
fn exchange<D: Dialect>(way: &Way, dialect: D, seat: Seat) -> Exchange<D> {
    Exchange::new(way.clone(), dialect, seat.users, seat.thread * seat.users_in_all)
}

fn load_exchange<D: Dialect>(
    common: &Common,
    way: &Way,
    options: Value,
    make: impl Fn(Seat) -> Result<Exchange<D>> + Sync,
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
    load(common, 1, options, make, ports, out)
}

fn run_krb5(args: &cli::Krb5, options: Value, out: &mut dyn Write) -> Result<u8> {
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
        same_bytes: args.same_bytes,
        // Another for each run: what one asked, the next does not ask again.
        seed: start.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64),
        start,
        request,
    });
    let make = |seat: Seat| Ok(exchange(&way, Krb5::new(Arc::clone(&settings)), seat));
    load_exchange(&args.common, &way, options, make, out)
}

fn run_nss(args: &cli::Nss, options: Value, out: &mut dyn Write) -> Result<u8> {
    let module = args.module.as_deref().map(|file| Module::load(file, args.lookup)).transpose()?;
    let settings = Arc::new(nss::Settings { lookup: args.lookup, key: args.key.clone(), module });
    let make = |_: Seat| {
        let mut nss = Nss::new(Arc::clone(&settings));
        Ok(Blocking::new(move |request| nss.look_up(request)))
    };
    load(&args.common, 1, options, make, |_| None, out)
}

fn run_pam(args: &cli::Pam, options: Value, out: &mut dyn Write) -> Result<u8> {
    let pam = Pam::load(&args.service, args.config_folder.as_deref(), &args.steps)?;
    let make = |_: Seat| {
        let (pam, user, password) = (pam.clone(), args.user.clone(), args.password.clone());
        Ok(Blocking::new(move |request| pam.log_in(&user.text(request), &password.text(request))))
    };
    load(&args.common, 1, options, make, |_| None, out)
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
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
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
fn uri(text: &str) -> Result<(bool, String, u16)> {
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

/// How fast a closed loop is nobody knows before; what its ports allow is.
fn tell_ports(budget: Budget, common: &Common) {
    if let (None, Some(rate), true) = (&common.rate, budget.rate(), budget.is_tight()) {
        say(&format!(
            "roster-lab: {} ports, each taken for {} s after its connection, allow {rate:.0} connections/s \
             in the long run",
            budget.ports,
            budget.hold.as_secs()
        ));
    }
}

/// What is said of ports before a run that does not fit them.
fn of_ports(budget: Budget, stage: &Planned, rate: f64) -> Option<Warning> {
    let time = stage.stage.warm_up + stage.stage.duration;
    let share = budget.share(stage.users.into(), rate, time);
    (share > 1.0).then(|| Warning {
        kind: "ports",
        ratio: share,
        text: format!(
            "this run needs {share:.1} times the {} ports that there are, each taken for {} s after \
             its connection: at most {:.0} connections/s can be kept up, and others will fail with \
             \"Cannot assign requested address\". {PORT_CURES}",
            budget.ports,
            budget.hold.as_secs(),
            budget.rate().unwrap_or(f64::INFINITY)
        ),
    })
}

fn run_command(args: &cli::Shell, options: Value, out: &mut dyn Write) -> Result<u8> {
    let settings = Arc::new(command::Settings::new(&args.command)?);
    let make = |seat: Seat| Ok(Commands::new(Arc::clone(&settings), seat.users));
    // Starting a process blocks a thread until the process has become the program.
    let threads = available_parallelism().map_or(1, usize::from);
    load(&args.common, threads, options, make, |_| None, out)
}

/// One run that is to be made.
#[derive(Clone, Copy, Debug)]
struct Planned {
    users: u32,
    stage: Stage,
}

impl Planned {
    /// The rate that is asked for; none in a closed loop.
    fn offered(&self) -> Option<f64> {
        match self.stage.load {
            Load::Closed { .. } => None,
            Load::Open(pace) => Some(f64::midpoint(pace.from, pace.to)),
        }
    }

    /// The highest rate of connections that is sure to come; in a closed loop none is.
    fn rate_max(&self) -> f64 {
        match self.stage.load {
            Load::Closed { .. } => 0.0,
            Load::Open(pace) => pace.from.max(pace.to),
        }
    }

    fn name(&self) -> String {
        match self.offered() {
            Some(rate) => format!("{rate:.0}/s"),
            None => format!("{} users", self.users),
        }
    }
}

/// What the runs together came to.
#[derive(Default)]
struct Sum {
    outcome: Outcome,
    stages: Vec<Figures>,
    warnings: Vec<Warning>,
}

impl Sum {
    fn add(&mut self, outcome: Outcome, figures: Figures, warnings: Vec<Warning>) {
        self.stages.push(figures);
        for warning in warnings {
            // Of several runs, the worst of each kind.
            match self.warnings.iter_mut().find(|other| other.kind == warning.kind) {
                Some(other) if other.ratio < warning.ratio => *other = warning,
                Some(_) => {}
                None => self.warnings.push(warning),
            }
        }
        self.outcome.recorder.add(outcome.recorder);
        self.outcome.measured += outcome.measured;
        self.outcome.threads.extend(outcome.threads);
        self.outcome.interrupted |= outcome.interrupted;
        if let Some(server) = outcome.server {
            let cpu = self.outcome.server.map_or(Duration::ZERO, |before| before.cpu) + server.cpu;
            self.outcome.server = Some(crate::server::Consumed { cpu, ..server });
        }
    }
}

/// Makes all runs and reports them. With `threads`, unless there is a wish for others.
fn load<E: Engine>(
    common: &Common,
    threads: usize,
    options: Value,
    make: impl Fn(Seat) -> Result<E> + Sync,
    ports: impl Fn(&Planned) -> Option<Warning>,
    out: &mut dyn Write,
) -> Result<u8> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let server = server(common)?;
    if let Some(server) = &server {
        server.consumed()?;
    }
    let stop = stop_on_signals()?;
    let mut json =
        common.json.as_deref().filter(|path| *path != Path::new("-")).map(create).transpose()?;
    let mut hdr = common.hdr.as_deref().map(create).transpose()?;
    let mut sum = Sum::default();
    let mut carry = |planned: Planned| -> Result<Outcome> {
        allow_descriptors(planned.users)?;
        let before = ports(&planned);
        if let Some(warning) = &before {
            say(&format!("roster-lab: {}", warning.text));
        }
        let mut view = View::new(&planned.stage, planned.name(), common.quiet);
        let threads = common.threads.map_or(threads, |threads| threads as usize);
        let crew = Crew { users: planned.users as usize, threads };
        let outcome = carry_out(planned.stage, crew, server.as_ref(), &stop, &make, |sight| {
            view.show(sight);
        })?;
        drop(view);
        let figures = Figures::of(&outcome, planned.users, planned.offered());
        let mut warnings: Vec<Warning> = before.into_iter().collect();
        warnings.extend(report::warnings(&outcome, planned.users));
        sum.add(outcome.clone(), figures, warnings);
        Ok(outcome)
    };
    let knee = match common.knee {
        Some(p99) => Some(find_knee(common, p99, &mut carry)?),
        None => {
            for planned in stages(common)? {
                if carry(planned)?.interrupted {
                    break;
                }
            }
            None
        }
    };
    let Sum { outcome, mut stages, warnings } = sum;
    let figures = match stages.as_slice() {
        [one] => one.clone(),
        several => {
            let users = several.iter().map(|stage| stage.users).max().unwrap_or_default();
            Figures::of(&outcome, users, None)
        }
    };
    if stages.len() < 2 {
        stages.clear();
    }
    let origin =
        Origin { version: env!("CARGO_PKG_VERSION"), host: Host::this(), time, plan: options };
    let report =
        Report { figures, warnings, stages, knee, interrupted: outcome.interrupted, origin };
    if let Some(json) = &mut json {
        write_json(&report, json)?;
    }
    if let Some(hdr) = &mut hdr {
        report::write_percentiles(&outcome.recorder, hdr)?;
        hdr.flush()?;
    }
    if common.json.as_deref() == Some(Path::new("-")) {
        write_json(&report, out)?;
    } else {
        text::write(&report, out)?;
    }
    Ok(code(&outcome))
}

fn code(outcome: &Outcome) -> u8 {
    let Recorder { requests, .. } = outcome.recorder;
    match outcome.interrupted {
        true => INTERRUPTED,
        false if requests == outcome.recorder.failed() => FAILED,
        false => 0,
    }
}

fn write_json(report: &Report, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Before the run, so that none is made whose report cannot be written.
fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

fn server(common: &Common) -> Result<Option<Server>> {
    Ok(match (common.server_pid, &common.server_unit) {
        (Some(pid), _) => Some(Server::Process(pid)),
        (None, Some(name)) => {
            ensure!(!name.contains('/') && name != "..", "--server-unit {name}: is no unit");
            let suffix = if name.contains('.') { "" } else { ".service" };
            Some(Server::Unit(format!("{name}{suffix}")))
        }
        (None, None) => None,
    })
}

/// The runs of `--users` and `--rate`.
fn stages(common: &Common) -> Result<Vec<Planned>> {
    let open = common.rate.is_some();
    let users = match (common.users.as_slice(), open) {
        ([], false) => vec![USERS],
        ([], true) => vec![USERS_OPEN],
        (users, _) => users.to_vec(),
    };
    let loads: Vec<Load> = match &common.rate {
        None => vec![Load::Closed { think: common.think }],
        Some(Rate::Ramp(from, to)) => vec![Load::Open(pace(common, *from, *to))],
        Some(Rate::Steps(rates)) => {
            rates.iter().map(|&rate| Load::Open(pace(common, rate, rate))).collect()
        }
    };
    let stages: Vec<Planned> = users
        .iter()
        .flat_map(|&users| loads.iter().map(move |&load| (users, load)))
        .map(|(users, load)| Planned { users, stage: stage(common, load) })
        .collect();
    ensure!(
        stages.len() <= STAGES_MAX,
        "these are {} runs; make it {STAGES_MAX} or fewer",
        stages.len()
    );
    Ok(stages)
}

fn pace(common: &Common, from: f64, to: f64) -> Pace {
    Pace { from, to, warm_up: common.warm_up, over: common.duration }
}

fn stage(common: &Common, load: Load) -> Stage {
    let Common { warm_up, duration, timeout, .. } = *common;
    Stage { load, warm_up, duration, timeout }
}

fn find_knee(
    common: &Common,
    p99: Duration,
    carry: &mut impl FnMut(Planned) -> Result<Outcome>,
) -> Result<Knee> {
    let (Some(Rate::Steps(rates)), [] | [_]) = (&common.rate, common.users.as_slice()) else {
        return Err(anyhow!("--knee: begins at one --rate, with one number of --users"));
    };
    let [first] = rates.as_slice() else {
        return Err(anyhow!("--knee: begins at one --rate, not at several"));
    };
    let users = common.users.first().copied().unwrap_or(USERS_OPEN);
    let mut tries = Vec::new();
    while let Some(rate) = knee::next(*first, &tries) {
        let load = Load::Open(pace(common, rate, rate));
        let outcome = carry(Planned { users, stage: stage(common, load) })?;
        if outcome.interrupted {
            break;
        }
        let recorder = &outcome.recorder;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let failed = recorder.failed() as f64 / recorder.requests.max(1) as f64;
        let held = recorder.percentile(99.0) <= p99 && failed <= common.knee_failures;
        tries.push(knee::Try { rate, held });
    }
    Ok(Knee {
        rate: knee::found(&tries),
        p99_ms: p99.as_secs_f64() * 1e3,
        failures: common.knee_failures,
    })
}

/// The first signal ends the run, the second the program.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first one finds the flag not yet set.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(INTERRUPTED),
            Arc::clone(&stop),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    stop.store(false, Ordering::Relaxed);
    Ok(stop)
}

/// Each user has a descriptor.
fn allow_descriptors(users: u32) -> Result<()> {
    let needed = u64::from(users) + SPARE_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{users} users need {needed} open files, and this process may have {}: raise the limit \
         (ulimit -Hn {needed})",
        limit.maximum.unwrap_or_default()
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .with_context(|| format!("cannot allow {needed} open files"))
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
