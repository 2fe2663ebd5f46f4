// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `rosterd` with one or more domains from text files, in dedicated directories, and queries of its state.
#![allow(dead_code)] // each test program uses its part

use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{MonitorProxy, MonitorStatus, RoleProxy};
use roster_bus::zbus::{self, Connection};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub use roster_system_tests::wait::SOON;

/// The program under test.
pub const ROSTERD: &str = env!("CARGO_BIN_EXE_rosterd");

/// Waits until `look` returns a value.
#[track_caller]
pub fn poll_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    roster_system_tests::wait_for(SOON, || look().ok_or_else(|| what.to_owned()))
}

/// Whether a process exists and is not a zombie.
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Sends a signal.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("send a signal");
}

/// A daemon in dedicated directories. The drop ends it.
pub struct Daemon {
    pub folder: TempDir,
    pub process: Option<Child>,
    runtime: tokio::runtime::Runtime,
}

impl Daemon {
    /// Prepares a daemon with these domains, without starting it.
    pub fn prepared(domains: &[&str]) -> Self {
        let folder = TempDir::new().expect("make a directory");
        // Roles with separate users need access too.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let daemon = Self { folder, process: None, runtime: runtime.expect("start tokio") };
        daemon.write("passwd", "root:x:0:0::/root:/bin/sh\n");
        daemon.write("group", "root:x:0:\n");
        daemon.configure(domains, "");
        daemon
    }

    /// Starts a daemon, and waits until all roles are ready.
    pub fn start(domains: &[&str]) -> Self {
        let mut daemon = Self::prepared(domains);
        daemon.launch();
        daemon.wait_until_all_run();
        daemon
    }

    /// Returns a path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file to its directory.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write a file");
    }

    /// Writes the configuration, and a user and a group for each domain.
    pub fn configure(&self, domains: &[&str], more: &str) {
        let mut text = format!(
            "[host]\ndomains = {domains:?}\nmin_id = 1000\npasswd = {:?}\ngroup = {:?}\n",
            self.path("passwd"),
            self.path("group"),
        );
        for (place, domain) in domains.iter().enumerate() {
            let id = 2000 + place;
            let (passwd, group) = (format!("{domain}.passwd"), format!("{domain}.group"));
            self.write(&passwd, &format!("{domain}u:x:{id}:{id}::/home/{domain}u:/bin/sh\n"));
            self.write(&group, &format!("{domain}g:x:{id}:{domain}u\n"));
            let (passwd, group) = (self.path(&passwd), self.path(&group));
            let _ = write!(
                text,
                "[domain.{domain}]\nprovider = \"files\"\npasswd = {passwd:?}\ngroup = {group:?}\n",
            );
        }
        text.push_str(more);
        self.write("roster.toml", &text);
    }

    /// Returns the command that starts it, as the invoking user.
    pub fn command(&self) -> Command {
        let mut command = Command::new(ROSTERD);
        command.arg("--config").arg(self.path("roster.toml"));
        command.arg("--state-dir").arg(self.path("state"));
        command.arg("--run-dir").arg(self.path("run"));
        // Frequent enough for short tests, with time for replies on a busy machine.
        command.args(["--ping", "1"]);
        command
    }

    /// Starts it.
    pub fn launch(&mut self) {
        let mut command = self.command();
        self.launch_by(&mut command);
    }

    /// Starts it by another command.
    pub fn launch_by(&mut self, command: &mut Command) {
        let log = fs::File::options().create(true).append(true).open(self.path("log"));
        let log = log.expect("open the log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("start rosterd"));
    }

    /// Returns the monitor's process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").id()
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the process ids of its children.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Runs a function with a connection to its bus.
    pub fn on_bus<T>(
        &self,
        ask: impl AsyncFnOnce(Connection) -> zbus::Result<T>,
    ) -> zbus::Result<T> {
        let address = format!("unix:path={}", self.path("run/bus").display());
        self.runtime.block_on(async {
            let connecting =
                zbus::connection::Builder::address(address.as_str()).method_timeout(SOON).build();
            ask(connecting.await?).await
        })
    }

    /// Returns the monitor's status, if it replies.
    pub fn status(&self) -> Option<MonitorStatus> {
        let ask = async |connection: Connection| {
            let monitor = MonitorProxy::new(&connection).await?;
            monitor.status().await.map_err(|error| zbus::Error::Failure(error.to_string()))
        };
        self.on_bus(ask).ok()
    }

    /// Calls a role's common interface.
    pub fn ask_role<T>(
        &self,
        role: &str,
        ask: impl AsyncFnOnce(RoleProxy<'_>) -> Result<T, roster_bus::interfaces::BusError>,
    ) -> Result<T, String> {
        let role = RoleName::parse(role).expect("a role");
        let asking = async |connection: Connection| {
            let builder = RoleProxy::builder(&connection).destination(role.bus_name());
            let proxy = builder.path(role.path()).build().await?;
            ask(proxy).await.map_err(|error| zbus::Error::Failure(error.to_string()))
        };
        self.on_bus(asking).map_err(|error| error.to_string())
    }

    /// Returns the state of a role, and its process id.
    pub fn role(&self, role: &str) -> Option<(String, u32)> {
        let roles = self.status()?.roles;
        roles.into_iter().find(|state| state.role == role).map(|state| (state.state, state.pid))
    }

    /// Returns the process id of a role, once it is ready.
    #[track_caller]
    pub fn running(&self, role: &str) -> u32 {
        poll_until(&format!("{role} runs"), || {
            self.role(role).filter(|(state, _)| state == "running").map(|(_, pid)| pid)
        })
    }

    /// Waits for a process of a role other than `before`.
    #[track_caller]
    pub fn replaced(&self, role: &str, before: u32) -> u32 {
        poll_until(&format!("{role} was replaced"), || {
            self.role(role)
                .filter(|(state, pid)| state == "running" && *pid != before)
                .map(|(_, pid)| pid)
        })
    }

    /// Waits until all roles run or are idle.
    #[track_caller]
    pub fn wait_until_all_run(&self) {
        poll_until("all roles run", || {
            let roles = self.status()?.roles;
            let well = |state: &str| state == "running" || state == "idle";
            roles.iter().all(|role| well(&role.state)).then_some(())
        });
    }

    /// Waits for a line in the log.
    #[track_caller]
    pub fn wait_for_log(&self, part: &str) {
        poll_until(&format!("{part:?} in the log"), || self.log().contains(part).then_some(()));
    }

    /// Waits for its end and returns the exit status.
    #[track_caller]
    pub fn ended(&mut self) -> Option<i32> {
        let mut process = self.process.take().expect("it was started");
        poll_until("rosterd ends", || process.try_wait().expect("wait")).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("rosterd logged:\n{}", self.log());
        }
        if let Some(mut process) = self.process.take() {
            if process.try_wait().is_ok_and(|ended| ended.is_none()) {
                signal(process.id(), Signal::TERM);
            }
            let _ = process.wait();
        }
    }
}

/// Runs rosterd, which must end without a signal. Returns the exit status and standard error.
pub fn refused(command: &mut Command) -> (Option<i32>, String) {
    let done = command.stdin(Stdio::null()).output().expect("start rosterd");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Returns the text of a file.
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
