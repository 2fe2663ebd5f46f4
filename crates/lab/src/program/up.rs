//! `roster-lab up`: a master of Locust with its page, and workers beside it. All end together.

use super::session::stop_on_signals;
use super::tether::tied;
use super::{FAILED, INTERRUPTED, say};
use crate::cli;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at who still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A master writes its last figures, and workers hear that it ends.
const END_WITHIN: Duration = Duration::from_secs(15);

/// A program that ends with us.
struct Running {
    name: String,
    child: Child,
}

impl Running {
    fn start(name: String, command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self { child: child.with_context(|| format!("cannot start {name}"))?, name })
    }

    /// Asks it to end.
    fn ask(&self) {
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says so before Locust does at length.
fn is_free(option: &str, address: SocketAddr) -> Result<()> {
    TcpListener::bind(address).with_context(|| format!("{option}: cannot listen on {address}"))?;
    Ok(())
}

/// Starts all and waits until the master has ended; its exit code.
pub fn run(args: &cli::Up) -> Result<u8> {
    let workers = match (args.workers, args.source.len()) {
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
    };
    is_free("--port", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), args.port))?;
    let has_page = !args.options.iter().any(|option| option == "--headless");
    if has_page {
        is_free("--web", args.web)?;
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
    let start = |program: &Path| tied(program).context("cannot find this program");
    let mut master = start(&args.python)?;
    master.args(["-m", "locust", "--master", "--locustfile"]).arg(&args.file);
    master.args(["--master-bind-host", "127.0.0.1", "--master-bind-port", &args.port.to_string()]);
    master.args(["--expect-workers", &workers.to_string()]);
    master.args(["--web-host", &args.web.ip().to_string(), "--web-port"]);
    master.arg(args.web.port().to_string()).args(&args.options).env("ROSTER_LAB", &program);
    master.env("ROSTER_LAB_CLASSES", &classes);
    let mut master = Running::start(format!("{} -m locust", args.python.display()), &mut master)?;
    let started = (0..workers).map(|number| {
        let mut worker = start(&program)?;
        worker.args(["worker", "--master", &format!("127.0.0.1:{}", args.port)]);
        worker.arg("--classes").arg(&classes);
        if let Some(source) = args.source.get(number) {
            worker.args(["--source", &source.to_string()]);
        }
        Running::start(format!("worker {}", number + 1), &mut worker)
    });
    let mut started = started.collect::<Result<Vec<_>>>()?;
    let mut has_page_to_tell_of = has_page;
    let (mut interrupted, mut told) = (false, Vec::new());
    let mut deadline = None;
    let code = loop {
        if let Some(code) = master.code()? {
            break code;
        }
        if has_page_to_tell_of && TcpStream::connect_timeout(&args.web, LOOK_EVERY).is_ok() {
            has_page_to_tell_of = false;
            say(&format!("roster-lab: the page is http://{}/", args.web));
        }
        if stop.load(Ordering::Relaxed) && !interrupted {
            interrupted = true;
            deadline = Some(Instant::now() + END_WITHIN);
            master.ask();
        }
        if deadline.is_some_and(|at| Instant::now() >= at) {
            break FAILED;
        }
        for (number, worker) in started.iter_mut().enumerate() {
            if !told.contains(&number) && worker.code()?.is_some() && !interrupted {
                say(&format!("roster-lab: {} has ended", worker.name));
                told.push(number);
            }
        }
        thread::sleep(LOOK_EVERY);
    };
    // They end with their master.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && any_runs(&mut started)? {
        thread::sleep(LOOK_EVERY);
    }
    Ok(if interrupted { INTERRUPTED } else { code })
}

fn any_runs(workers: &mut [Running]) -> Result<bool> {
    for worker in workers {
        if worker.code()?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
