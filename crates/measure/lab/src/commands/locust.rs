//! `roster-lab locust`: a master of Locust with its page, and workers beside it. All end together.

use super::run_load::stop_on_signals;
use super::tether::tied;
use super::{FAILED, INTERRUPTED, print_error};
use crate::args;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at who still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A master writes its last figures, and workers hear that it ends.
const END_WITHIN: Duration = Duration::from_secs(15);

/// A program that ends with us.
struct TiedChild {
    name: String,
    child: Child,
}

impl TiedChild {
    fn start(name: String, command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self { child: child.with_context(|| format!("cannot start {name}"))?, name })
    }

    /// Asks it to end.
    fn terminate(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Its exit code, once it has ended.
    fn code(&mut self) -> Result<Option<u8>> {
        let status =
            self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))?;
        let code = |status: std::process::ExitStatus| {
            status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
        };
        Ok(status.map(code))
    }
}

impl Drop for TiedChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says so before Locust does at length.
fn ensure_free(option: &str, address: SocketAddr) -> Result<()> {
    TcpListener::bind(address).with_context(|| format!("{option}: cannot listen on {address}"))?;
    Ok(())
}

/// Starts all and waits until the master has ended; its exit code.
pub fn run(args: &args::LocustArgs) -> Result<u8> {
    let workers = count_workers(args)?;
    ensure_free("--port", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), args.port))?;
    let has_page = !args.options.iter().any(|option| option == "--headless");
    if has_page {
        ensure_free("--web", args.web)?;
    }
    let stop = stop_on_signals()?;
    // What users do, passwords too, goes this way: whoever else is on this host can reach the port of the
    // master, or have it before.
    let folder = tempfile::Builder::new()
        .prefix("roster-lab-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("cannot make a folder for what users do")?;
    let classes = folder.path().join("classes.json");
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut master = start_master(args, workers, &program, &classes)?;
    let started = (0..workers).map(|number| start_worker(args, number, &program, &classes));
    let mut started = started.collect::<Result<Vec<_>>>()?;
    let page = has_page.then_some(args.web);
    let code = wait_for_master(&mut master, &mut started, page, &stop)?;
    // They end with their master.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && any_runs(&mut started)? {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(code)
}

/// As many workers as are wished for, as there are addresses, or as there are processors but one.
fn count_workers(args: &args::LocustArgs) -> Result<usize> {
    Ok(match (args.workers, args.source.len()) {
        (Some(workers), 0) => workers as usize,
        (None, 0) => {
            thread::available_parallelism().map_or(1, |all| all.get().saturating_sub(1).max(1))
        }
        (None, sources) => sources,
        (Some(workers), sources) => {
            ensure!(
                workers as usize == sources,
                "--source: there are {sources} addresses for {workers} workers"
            );
            sources
        }
    })
}

fn tied_command(program: &Path) -> Result<Command> {
    tied(program).context("cannot find this program")
}

fn start_master(
    args: &args::LocustArgs,
    workers: usize,
    program: &Path,
    classes: &Path,
) -> Result<TiedChild> {
    let mut master = tied_command(&args.python)?;
    master.args(["-m", "locust", "--master", "--locustfile"]).arg(&args.file);
    master.args(["--master-bind-host", "127.0.0.1", "--master-bind-port", &args.port.to_string()]);
    master.args(["--expect-workers", &workers.to_string()]);
    master.args(["--web-host", &args.web.ip().to_string(), "--web-port"]);
    master.arg(args.web.port().to_string()).args(&args.options).env("ROSTER_LAB", program);
    master.env("ROSTER_LAB_CLASSES", classes);
    TiedChild::start(format!("{} -m locust", args.python.display()), &mut master)
}

fn start_worker(
    args: &args::LocustArgs,
    number: usize,
    program: &Path,
    classes: &Path,
) -> Result<TiedChild> {
    let mut worker = tied_command(program)?;
    worker.args(["worker", "--master", &format!("127.0.0.1:{}", args.port)]);
    worker.arg("--classes").arg(classes);
    if let Some(source) = args.source.get(number) {
        worker.args(["--source", &source.to_string()]);
    }
    TiedChild::start(format!("worker {}", number + 1), &mut worker)
}

/// Waits until the master has ended, of itself or as `stop` says, and prints the address of its page and the workers
/// that end before it. Gives the exit code.
fn wait_for_master(
    master: &mut TiedChild,
    workers: &mut [TiedChild],
    mut page: Option<SocketAddr>,
    stop: &AtomicBool,
) -> Result<u8> {
    let mut reported = Vec::new();
    // Once the master was told to end: until when it may take.
    let mut deadline = None;
    let code = loop {
        if let Some(code) = master.code()? {
            break code;
        }
        if let Some(address) =
            page.take_if(|page| TcpStream::connect_timeout(page, POLL_INTERVAL).is_ok())
        {
            print_error(&format!("roster-lab: the page is http://{address}/"));
        }
        if stop.load(Ordering::Relaxed) && deadline.is_none() {
            deadline = Some(Instant::now() + END_WITHIN);
            master.terminate();
        }
        if deadline.is_some_and(|at| Instant::now() >= at) {
            break FAILED;
        }
        for (number, worker) in workers.iter_mut().enumerate() {
            if !reported.contains(&number) && worker.code()?.is_some() && deadline.is_none() {
                print_error(&format!("roster-lab: {} has ended", worker.name));
                reported.push(number);
            }
        }
        thread::sleep(POLL_INTERVAL);
    };
    Ok(if deadline.is_some() { INTERRUPTED } else { code })
}

fn any_runs(workers: &mut [TiedChild]) -> Result<bool> {
    for worker in workers {
        if worker.code()?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
