//! Counters, and Prometheus text of them over HTTP on a loopback port: one GET a connection, many
//! connections at once in one thread, none for long.

use super::record::Verdict;
use roster_exec::wire::End;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// From a connection to its end.
const CONNECTION_TIME: Duration = Duration::from_secs(2);
/// Of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// At once; of more, the oldest go.
const CONNECTIONS_MAX: usize = 16;
/// After an error, which is most likely a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Goes up, and some go down.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.more(1);
    }

    fn more(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// One more until what is returned goes.
    pub(super) fn held(&self) -> Held<'_> {
        self.add();
        Held(self)
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that goes down again.
pub(super) struct Held<'c>(&'c Counter);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All of this process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// In the order of [`VERDICTS`].
    verdicts: [Counter; 6],
    exited: Counter,
    died: Counter,
    time_over: Counter,
    microseconds: Counter,
    pub(super) running: Counter,
    pub(super) connections: Counter,
    pub(super) turned_out: Counter,
    pub(super) malformed: Counter,
    pub(super) records_dropped: Counter,
    pub(super) reloads: Counter,
    pub(super) reloads_failed: Counter,
}

/// As [`Verdict::word`] has them.
const VERDICTS: [&str; 6] = ["allowed", "refused", "not-found", "not-executable", "busy", "failed"];

impl Counters {
    /// That a command is over, or never began.
    pub(super) fn count(&self, verdict: &Verdict, time: Duration) {
        let place = VERDICTS.iter().position(|known| *known == verdict.word());
        if let Some(counter) = place.and_then(|place| self.verdicts.get(place)) {
            counter.add();
        }
        let Verdict::Ran(end) = verdict else { return };
        match end {
            End::Exited(_) => self.exited.add(),
            End::Died(_) => self.died.add(),
            End::TimeOver => self.time_over.add(),
        }
        self.microseconds.more(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// As Prometheus reads it.
    fn render(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let labelled = |label: &str, value: &str, counter: &Counter| {
            (format!("{{{label}=\"{value}\"}}"), counter.get().to_string())
        };
        let plain = |counter: &Counter| [(String::new(), counter.get().to_string())];
        let verdicts = VERDICTS.iter().zip(&self.verdicts);
        let verdicts = verdicts.map(|(known, counter)| labelled("verdict", known, counter));
        family(
            "roster_exec_commands_total",
            "counter",
            "Commands that were asked for",
            &verdicts.collect::<Vec<_>>(),
        );
        let ends = [("exited", &self.exited), ("died", &self.died), ("time-over", &self.time_over)];
        let ends = ends.map(|(how, counter)| labelled("how", how, counter));
        family("roster_exec_ended_total", "counter", "Commands that have ended", &ends);
        let seconds = Duration::from_micros(self.microseconds.get()).as_secs_f64().to_string();
        let seconds = [(String::new(), seconds)];
        family("roster_exec_seconds_total", "counter", "Time that commands took", &seconds);
        for (name, kind, help, counter) in [
            ("running", "gauge", "Commands that run", &self.running),
            ("connections", "gauge", "Connections", &self.connections),
            ("turned_out_total", "counter", "Connections closed for newer ones", &self.turned_out),
            ("malformed_total", "counter", "Connections that broke the protocol", &self.malformed),
            ("records_dropped_total", "counter", "Records not told", &self.records_dropped),
            ("reloads_total", "counter", "Policies taken over", &self.reloads),
            ("reloads_failed_total", "counter", "Policies not taken over", &self.reloads_failed),
        ] {
            family(&format!("roster_exec_{name}"), kind, help, &plain(counter));
        }
        text
    }

    /// Serves them from now on, in a thread of its own.
    pub(super) fn serve(self: &Arc<Self>, address: SocketAddr) -> io::Result<()> {
        if !address.ip().is_loopback() {
            let what =
                format!("{address} is no address of this host alone, such as 127.0.0.1:9164");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let counters = Arc::clone(self);
        let thread = thread::Builder::new().name("metrics".into());
        thread.spawn(move || {
            let mut scrapers = VecDeque::new();
            loop {
                if turn(&listener, &mut scrapers, &counters).is_err() {
                    thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(())
    }
}

/// A connection whose request has not come whole.
struct Scraper {
    stream: TcpStream,
    request: Vec<u8>,
    until: Instant,
}

/// Waits until somebody comes or says something, and answers whoever has said all; who says nothing is in
/// nobody's way.
fn turn(
    listener: &TcpListener,
    scrapers: &mut VecDeque<Scraper>,
    counters: &Counters,
) -> io::Result<()> {
    let left =
        scrapers.front().map(|oldest| oldest.until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let streams = scrapers.iter().map(|scraper| PollFd::new(&scraper.stream, PollFlags::IN));
    let mut fds: Vec<_> =
        [PollFd::new(listener, PollFlags::IN)].into_iter().chain(streams).collect();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let mut is_ready = ready.iter().copied();
    let somebody_comes = is_ready.next().unwrap_or_default();
    let now = Instant::now();
    scrapers.retain_mut(|scraper| {
        let has_come = is_ready.next().unwrap_or_default();
        scraper.until > now && (!has_come || scraper.go_on(counters).unwrap_or_default())
    });
    for _ in 0..if somebody_comes { CONNECTIONS_MAX } else { 0 } {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                let mut scraper =
                    Scraper { stream, request: Vec::new(), until: now + CONNECTION_TIME };
                // Most often its request is there already.
                if scraper.go_on(counters).unwrap_or_default() {
                    scrapers.push_back(scraper);
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    // The oldest make room.
    scrapers.drain(..scrapers.len().saturating_sub(CONNECTIONS_MAX));
    Ok(())
}

impl Scraper {
    /// Reads on; whether more is to come.
    fn go_on(&mut self, counters: &Counters) -> io::Result<bool> {
        while !self.request.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut piece = [0; 1024];
            let count = match self.stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                count => count?,
            };
            if count == 0 || self.request.len() > REQUEST_BYTES_MAX {
                return Ok(false);
            }
            self.request.extend_from_slice(&piece[..count]);
        }
        // It fits into a socket that nothing was written to.
        self.stream.write_all(answer(&self.request, counters).as_bytes())?;
        Ok(false)
    }
}

fn answer(request: &[u8], counters: &Counters) -> String {
    let mut words = request.split(|byte| b" \r".contains(byte));
    let (status, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics" | b"/")) => ("200 OK", counters.render()),
        (Some(b"GET"), _) => ("404 Not Found", "see /metrics\n".into()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".into()),
    };
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    head + &body
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_exec::wire::Why;

    #[test]
    fn who_says_nothing_is_in_nobodys_way() {
        // Another process may have taken the port meanwhile: then the next one is tried.
        let serve = |counters: &Arc<Counters>| {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            counters.serve(free).map(|()| free)
        };
        let counters = Arc::new(Counters::default());
        let address = (0..10).find_map(|_| serve(&counters).ok()).unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let mut silent: Vec<_> = (0..CONNECTIONS_MAX + 20).map(|_| connect()).collect();
        let before = Instant::now();
        for pieces in [&["GET /metrics HTTP/1.0\r\n\r\n"][..], &["GET / HT", "TP/1.0\r\n\r", "\n"]]
        {
            let mut stream = connect();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.0 200") && text.contains("running 0"), "{text}");
        }
        assert!(before.elapsed() < CONNECTION_TIME);
        // And does not stay.
        for stream in &mut silent {
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
    }

    #[test]
    fn every_verdict_and_every_end_is_counted() {
        let counters = Counters::default();
        counters.count(&Verdict::Ran(End::Died(9)), Duration::from_millis(500));
        for why in [Why::Refused, Why::NotFound, Why::NotExecutable, Why::Busy, Why::Failed] {
            counters.count(&Verdict::Denied(why, String::new()), Duration::ZERO);
        }
        assert!(counters.verdicts.iter().all(|counter| counter.get() == 1));
        counters.count(&Verdict::Ran(End::TimeOver), Duration::from_secs(1));
        let text = counters.render();
        for line in [
            "roster_exec_commands_total{verdict=\"allowed\"} 2",
            "roster_exec_commands_total{verdict=\"not-found\"} 1",
            "roster_exec_ended_total{how=\"time-over\"} 1",
            "roster_exec_seconds_total 1.5",
            "roster_exec_running 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
