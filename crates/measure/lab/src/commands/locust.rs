// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-lab locust`: starts a Locust master with its page, and workers. All end together. `worker` makes the
//! requests.

use super::run_load::stop_on_signals;
use super::tether::tied;
use super::{FAILED, INTERRUPTED, print_error};
use crate::args;
use crate::coded::{Coded, ensure_coded};
use anyhow::Result;
use roster_messages::table::lab;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of checks for ended processes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for the master to write its last figures and to stop its workers.
const END_WITHIN: Duration = Duration::from_secs(15);

/// A program that ends with this process.
struct TiedChild {
    name: String,
    child: Child,
}

impl TiedChild {
    fn start(name: String, command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        let text = format_args!("{name}: cannot start");
        Ok(Self { child: child.coded(&lab::CHILD_NOT_STARTED, text)?, name })
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Returns the exit code after the end of the program.
    fn code(&mut self) -> Result<Option<u8>> {
        let text = format_args!("{}: cannot wait for its end", self.name);
        let status = self.child.try_wait().coded(&lab::SYSTEM_ERROR, text)?;
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

/// Checks that an address is free, with a shorter message than Locust's.
fn ensure_free(option: &str, address: SocketAddr) -> Result<()> {
    let text = format_args!("{option}: cannot listen on {address}");
    TcpListener::bind(address).coded(&lab::LISTEN_FAILED, text)?;
    Ok(())
}

/// Starts all programs and waits until the master has ended. Returns its exit code.
pub fn run(args: &args::LocustArgs) -> Result<u8> {
    let workers = count_workers(args)?;
    ensure_free("--port", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), args.port))?;
    let has_page = !args.options.iter().any(|option| option == "--headless");
    if has_page {
        ensure_free("--web", args.web)?;
    }
    let stop = stop_on_signals()?;
    // The loads with their passwords go to workers through a private file. Other users of this host can reach the
    // master's port, or listen on it first.
    let folder = tempfile::Builder::new()
        .prefix("roster-lab-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .coded(&lab::DIRECTORY_NOT_CREATED, "directory of user classes: cannot be created")?;
    let classes = folder.path().join("classes.json");
    let program =
        std::env::current_exe().coded(&lab::PROGRAM_PATH_UNKNOWN, "roster-lab: no path")?;
    let mut master = start_master(args, workers, &program, &classes)?;
    let started = (0..workers).map(|number| start_worker(args, number, &program, &classes));
    let mut started = started.collect::<Result<Vec<_>>>()?;
    let page = has_page.then_some(args.web);
    let code = wait_for_master(&mut master, &mut started, page, &stop)?;
    // Workers end with their master.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && any_runs(&mut started)? {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(code)
}

/// Returns the number of workers: --workers, one for each address, or one less than processors.
fn count_workers(args: &args::LocustArgs) -> Result<usize> {
    Ok(match (args.workers, args.source.len()) {
        (Some(workers), 0) => workers as usize,
        (None, 0) => {
            thread::available_parallelism().map_or(1, |all| all.get().saturating_sub(1).max(1))
        }
        (None, sources) => sources,
        (Some(workers), sources) => {
            ensure_coded!(
                workers as usize == sources,
                WORKERS_AND_SOURCES,
                "--source: number of addresses is {sources}, number of workers is {workers}"
            );
            sources
        }
    })
}

fn tied_command(program: &Path) -> Result<Command> {
    tied(program).coded(&lab::PROGRAM_PATH_UNKNOWN, "roster-lab: no path")
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

/// Waits until the master has ended, and stops it when `stop` is set. Prints the address of its page, and workers that
/// end early. Returns the exit code.
fn wait_for_master(
    master: &mut TiedChild,
    workers: &mut [TiedChild],
    mut page: Option<SocketAddr>,
    stop: &AtomicBool,
) -> Result<u8> {
    let mut reported = Vec::new();
    // The deadline of the master after SIGTERM.
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
                let code = lab::WORKER_ENDED.code;
                print_error(&format!(
                    "roster-lab: {} ended before the master [{code}]",
                    worker.name
                ));
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
