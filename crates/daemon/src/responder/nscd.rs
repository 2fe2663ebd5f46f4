//! Serves users and groups from maps, in place of nscd. All of it is in `roster-nscd`; this brings its server,
//! which has a thread of its own, together with the bus and the monitor. Started at once, and not at the
//! first connection: the maps are to be there before anybody asks.
//!
//! Timers: those of the server.

use crate::role::{self, Context, SNAPSHOT};
use anyhow::{Context as _, anyhow};
use roster_nscd::server::figures::Figures;
use roster_nscd::server::sources::{Files, ROOM_BYTES};
use roster_nscd::server::{self, End, Level, Options};
use roster_nscd::starter::Starter;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// How often the figures that others read are brought up to date.
const FIGURES_EVERY: Duration = Duration::from_secs(5);

/// Without a sign of life of the server, which gives one every ten seconds, it is given up: every program waits for 5 s
/// again and again. As the unit of `roster nscd` has it.
const STANDS_STILL: Duration = Duration::from_secs(30);

/// Runs until the role is to stop, with helpers of that starter.
///
/// # Errors
///
/// What keeps the server from its work; the monitor starts the role again.
pub async fn run(mut context: Context<role::Nscd>, starter: Starter) -> anyhow::Result<()> {
    let listener = context.listener.take().context("the monitor gave no socket to listen at")?;
    let (stop, stopping) = UnixStream::pair()?;
    let (ready, is_ready) = oneshot::channel();
    let figures = Arc::new(Mutex::new(Figures::default()));
    let alive = Arc::new(Mutex::new(Instant::now()));
    let seen = Arc::clone(&alive);
    let role::Nscd { passwd, group, maps, administrator, config, .. } = &context.config;
    let options = Options {
        listener,
        maps: maps.clone(),
        administrator: *administrator,
        files: Files {
            passwd: passwd.clone(),
            group: group.clone(),
            nsswitch: config.nsswitch.clone(),
            snapshot: context.snapshots().join(SNAPSHOT),
        },
        room: ROOM_BYTES,
        positive: config.positive,
        negative: config.negative,
        stop: stopping.into(),
        figures: Arc::clone(&figures),
        say: Box::new(|level, text| match level {
            Level::Warning => warn!("{text}"),
            Level::Info => info!("{text}"),
        }),
        alive: Box::new(move || *lock(&seen) = Instant::now()),
        ready: Box::new(move || _ = ready.send(())),
    };
    let (ended, mut end) = oneshot::channel();
    let serve = move || _ = ended.send(server::run(options, starter));
    std::thread::Builder::new().name("nscd".into()).spawn(serve)?;
    describe();
    // The monitor waits a while for the role, and not for a million users.
    context.ready().await?;
    tokio::spawn(async move {
        if is_ready.await.is_ok() {
            info!("maps are served");
        }
    });
    let mut tick = interval(FIGURES_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = context.shutdown.wait() => {
                drop(stop);
                let _ = end.await;
                return Ok(());
            }
            ended = &mut end => {
                return match ended {
                    Ok(Ok(End::Stopped)) => Ok(()),
                    Ok(Ok(End::ToldTo)) => {
                        Err(anyhow!("told to end over the socket; to switch it off for good, see [responder.nscd]"))
                    }
                    Ok(Err(error)) => Err(error.into()),
                    Err(_) => Err(anyhow!("the server's thread is gone")),
                };
            }
            _ = tick.tick() => {
                // The monitor asks the role, whose thread is another. It starts the role anew.
                let silent = lock(&alive).elapsed();
                if silent > STANDS_STILL {
                    return Err(anyhow!("the server's thread stands still for {} s", silent.as_secs()));
                }
                show(&lock(&figures));
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe() {
    metrics::describe_gauge!(
        "roster_nscd_map_bytes",
        "Size of the map that programs are handed, by table"
    );
    metrics::describe_gauge!("roster_nscd_map_entries", "Users or groups in it, by table");
    metrics::describe_counter!("roster_nscd_maps_total", "Maps made, by table");
    metrics::describe_counter!("roster_nscd_handed_out_total", "Maps handed to programs");
    metrics::describe_counter!("roster_nscd_answers_total", "Questions answered over the socket");
    metrics::describe_counter!("roster_nscd_helped_total", "Questions put to other name services");
    metrics::describe_counter!("roster_nscd_dropped_total", "Connections closed without an answer");
    metrics::describe_gauge!(
        "roster_nscd_problem",
        "Whether a table has no map, or not the newest"
    );
}

#[allow(clippy::cast_precision_loss)] // gauges
fn show(figures: &Figures) {
    for (table, of) in [("passwd", &figures.passwd), ("group", &figures.group)] {
        let bytes = if of.entries.is_some() { of.bytes } else { 0 };
        metrics::gauge!("roster_nscd_map_bytes", "table" => table).set(bytes as f64);
        let entries = of.entries.unwrap_or_default();
        metrics::gauge!("roster_nscd_map_entries", "table" => table).set(entries as f64);
        metrics::counter!("roster_nscd_maps_total", "table" => table).absolute(of.made);
        let problem = f64::from(u8::from(of.problem.is_some()));
        metrics::gauge!("roster_nscd_problem", "table" => table).set(problem);
    }
    metrics::counter!("roster_nscd_handed_out_total").absolute(figures.handed_out);
    metrics::counter!("roster_nscd_answers_total").absolute(figures.answered);
    metrics::counter!("roster_nscd_helped_total").absolute(figures.helped);
    metrics::counter!("roster_nscd_dropped_total").absolute(figures.dropped);
}
