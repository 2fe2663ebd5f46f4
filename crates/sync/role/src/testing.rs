// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of unit tests: an event loop and a bus. Released programs do not contain them. `role` and the crates of
//! roles use them; released programs do not contain them.

use roster_bus::zbus::{self, Connection};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs a future in this thread, as the roles do.
///
/// # Panics
///
/// The event loop cannot be created.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an event loop").block_on(work)
}

/// A dbus-daemon. The drop ends it.
pub struct TestBus {
    process: Child,
    address: String,
}

impl TestBus {
    /// Allows everything.
    pub const OPEN: &str = "";
    /// Denies all names.
    pub const NO_NAMES: &str = "<policy context='mandatory'><deny own='*'/></policy>";
    /// Denies subscriptions to signals.
    pub const NO_SIGNALS: &str = "<limit name='max_match_rules_per_connection'>0</limit>";

    /// Starts a bus with these restrictions. Its files are in `folder`.
    ///
    /// # Panics
    ///
    /// dbus-daemon is not installed, or refuses to start.
    #[must_use]
    pub fn start(folder: &Path, restrictions: &str) -> Self {
        let config = folder.join("bus.conf");
        let socket = folder.join("bus");
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><policy context='default'>\
             <allow user='*'/><allow own='*'/><allow send_destination='*'/>\
             <allow receive_sender='*'/></policy>{restrictions}</busconfig>",
            socket.display()
        );
        std::fs::write(&config, text).expect("write the configuration of the bus");
        let mut command = Command::new("dbus-daemon");
        command.args(["--nofork", "--nosyslog", "--print-address"]).stdout(Stdio::piped());
        // It reports limits and refusals there.
        command.stderr(Stdio::null());
        command.arg(format!("--config-file={}", config.display()));
        let mut process = command.spawn().expect("start dbus-daemon");
        let mut address = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut address).expect("the address of the bus");
        Self { process, address: address.trim().to_owned() }
    }

    /// Connects to the bus.
    ///
    /// # Panics
    ///
    /// The bus refuses the connection.
    pub async fn connect(&self) -> Connection {
        let builder = zbus::connection::Builder::address(&*self.address);
        builder.build().await.expect("a connection to the bus")
    }
}

impl Drop for TestBus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
