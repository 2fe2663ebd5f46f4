// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of unit tests: the codes that a test logs, and a bus.

use roster_bus::zbus::{self, Connection};
use roster_messages::Message;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Runs `work`. Returns the codes of the events that this thread logs meanwhile, and the result.
pub fn with_logged_codes<T>(work: impl FnOnce() -> T) -> (Vec<&'static Message>, T) {
    let codes = CodeCollector::default();
    let subscriber = tracing_subscriber::registry().with(codes.clone());
    let result = tracing::subscriber::with_default(subscriber, work);
    let codes = std::mem::take(&mut *codes.0.lock().unwrap_or_else(PoisonError::into_inner));
    (codes, result)
}

/// Runs `work` and returns the codes of the events that this thread logs meanwhile.
pub fn logged_codes(work: impl FnOnce()) -> Vec<&'static Message> {
    with_logged_codes(work).0
}

/// Runs a future in this thread, as the roles do.
///
/// # Panics
///
/// The event loop cannot be created.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an event loop").block_on(work)
}

#[derive(Clone, Default)]
struct CodeCollector(Arc<Mutex<Vec<&'static Message>>>);

impl<S: Subscriber> Layer<S> for CodeCollector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

impl Visit for CodeCollector {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "code" {
            let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            codes.extend(roster_messages::find(value));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
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
