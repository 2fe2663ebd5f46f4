// SPDX-License-Identifier: MIT OR Apache-2.0
//! Equal requests in flight share one call: only the first one is made, and the others wait for its reply. The callers,
//! such as `on_demand` of the publisher, choose the key.
//!
//! The call runs in a dedicated task, so that a requester that stops waiting does not affect the others. When the
//! called role ends, the bus ends the call with an error, and with it every wait.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// Identifies equal requests. The destination is part of the key: equal requests to two domains would otherwise share
/// the first one's reply. The uid is the one of the bus connection, not of the program behind it. Otherwise equal
/// requests of 500 users would be 500 calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// User id of the calling side of the bus.
    pub uid: u32,
    /// `call`, or another type of message.
    pub message: &'static str,
    /// Bus name of the called role.
    pub destination: String,
    /// Interface and member, with a dot between them.
    pub member: &'static str,
    /// Object path.
    pub path: String,
    /// Arguments as bytes; equal arguments are equal bytes.
    pub args: Vec<u8>,
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, message, destination, member, path, args } = self;
        write!(f, "{uid}:{message}:{destination}:{member}:{path}:{}", args.escape_ascii())
    }
}

/// The limit of different requests in flight is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests at once")]
pub struct TooManyInFlight;

type InFlight<V> = HashMap<CallKey, watch::Receiver<Option<V>>>;

/// Requests in flight.
pub struct Coalescer<V> {
    in_flight: Arc<Mutex<InFlight<V>>>,
    in_flight_max: usize,
}

impl<V: Clone + Send + Sync + 'static> Coalescer<V> {
    /// Makes a coalescer for that many different requests at once.
    #[must_use]
    pub fn new(at_most: usize) -> Self {
        Self { in_flight: Arc::default(), in_flight_max: at_most }
    }

    /// Returns the reply to a request, which is made unless an equal one is in flight. `joined` gets whether one was.
    /// The request must have a deadline.
    pub async fn request_or_join<F>(
        &self,
        key: CallKey,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<V, TooManyInFlight>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut answer = self.join_or_start(key, joined, request)?;
        let answered = answer.wait_for(Option::is_some).await;
        // The sender is dropped without a reply only if the request's task was ended.
        answered.ok().and_then(|value| value.clone()).ok_or(TooManyInFlight)
    }

    fn join_or_start<F>(
        &self,
        key: CallKey,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Option<V>>, TooManyInFlight>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut in_flight = self.in_flight.lock();
        if let Some(answer) = in_flight.get(&key) {
            joined(true);
            return Ok(answer.clone());
        }
        if in_flight.len() >= self.in_flight_max {
            return Err(TooManyInFlight);
        }
        joined(false);
        let (sender, receiver) = watch::channel(None);
        in_flight.insert(key.clone(), receiver.clone());
        drop(in_flight);
        let entry = InFlightGuard { in_flight: Arc::clone(&self.in_flight), key };
        let request = request();
        tokio::spawn(async move {
            let value = request.await;
            // Removed from the list first: later requests make another call.
            drop(entry);
            sender.send_replace(Some(value));
        });
        Ok(receiver)
    }

    /// Returns the number of different requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.lock().len()
    }
}

impl<V: Clone + Send + Sync + 'static> Coalescer<(u64, V)> {
    /// As [`request_or_join`](Self::request_or_join), and returns a change count. `heard` is the count at the time of
    /// this call. The result has the count from the start of the shared call, which may be lower. So the caller can
    /// detect changes since that start.
    pub async fn request_or_join_with_count<F>(
        &self,
        heard: u64,
        key: CallKey,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<(u64, V), TooManyInFlight>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let request = || {
            let request = request();
            async move { (heard, request.await) }
        };
        self.request_or_join(key, joined, request).await
    }
}

/// A request's entry in the list, removed however its task ends.
struct InFlightGuard<V> {
    in_flight: Arc<Mutex<InFlight<V>>>,
    key: CallKey,
}

impl<V> Drop for InFlightGuard<V> {
    fn drop(&mut self) {
        self.in_flight.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    fn key(destination: &str, name: &str) -> CallKey {
        CallKey {
            uid: 0,
            message: "call",
            destination: destination.into(),
            member: "org.roster.Backend1.LookUp",
            path: "/org/roster/Backend/corp".into(),
            args: name.into(),
        }
    }

    /// Blocks requests until the test opens it.
    #[derive(Clone)]
    struct Gate(Arc<Semaphore>);

    impl Gate {
        fn closed() -> Self {
            Self(Arc::new(Semaphore::new(0)))
        }

        fn open(&self) {
            self.0.close();
        }

        async fn pass(self) {
            assert!(self.0.acquire().await.is_err(), "a permit was given");
        }
    }

    /// Requests from many tasks before the first reply. Returns the replies and the number of calls.
    async fn ask_all(keys: Vec<CallKey>) -> (Vec<Result<usize, TooManyInFlight>>, usize) {
        let coalescer = Arc::new(Coalescer::new(100));
        let made = Arc::new(AtomicUsize::new(0));
        let (gate, asked) = (Gate::closed(), Arc::new(Semaphore::new(0)));
        let count = keys.len() as u32;
        let mut tasks = Vec::new();
        for key in keys {
            let (coalescer, made) = (Arc::clone(&coalescer), Arc::clone(&made));
            let (gate, asked) = (gate.clone(), Arc::clone(&asked));
            tasks.push(tokio::spawn(async move {
                let request = || async move {
                    gate.pass().await;
                    made.fetch_add(1, Ordering::Relaxed) + 1
                };
                let answer =
                    coalescer.request_or_join(key, |_| asked.add_permits(1), request).await;
                if answer.is_err() {
                    asked.add_permits(1);
                }
                answer
            }));
        }
        drop(asked.acquire_many(count).await.expect("the semaphore stays open"));
        gate.open();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.expect("the task ends"));
        }
        assert_eq!(coalescer.in_flight(), 0);
        (answers, made.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn five_hundred_equal_requests_are_one() {
        let (answers, made) = ask_all(vec![key("corp", "alice"); 500]).await;
        assert_eq!(made, 1);
        assert!(answers.iter().all(|answer| *answer == Ok(1)));
    }

    #[tokio::test]
    async fn the_same_question_to_two_domains_is_two_requests() {
        let (_, made) = ask_all(vec![key("corp", "alice"), key("lab", "alice")]).await;
        assert_eq!(made, 2);
    }

    #[tokio::test]
    async fn more_different_requests_than_there_is_room_for_are_refused() {
        let keys = (0..101).map(|number| key("corp", &number.to_string())).collect();
        let (answers, made) = ask_all(keys).await;
        assert_eq!((made, answers.iter().filter(|answer| answer.is_err()).count()), (100, 1));
    }

    #[tokio::test]
    async fn requester_that_leaves_cancels_nothing() {
        let coalescer = Arc::new(Coalescer::new(1));
        let (gate, made) = (Gate::closed(), Arc::new(Semaphore::new(0)));
        let leaver = {
            let (coalescer, gate, made) = (Arc::clone(&coalescer), gate.clone(), Arc::clone(&made));
            let request = || async move {
                gate.pass().await;
                7
            };
            tokio::spawn(async move {
                coalescer.request_or_join(key("corp", "a"), |_| made.add_permits(1), request).await
            })
        };
        drop(made.acquire().await.expect("the semaphore stays open"));
        leaver.abort();
        assert!(leaver.await.expect_err("the task was aborted").is_cancelled());
        assert_eq!(coalescer.in_flight(), 1);
        let made_again = || async { 8 };
        let joined = |joined: bool| {
            assert!(joined);
            gate.open();
        };
        assert_eq!(coalescer.request_or_join(key("corp", "a"), joined, made_again).await, Ok(7));
        let joined = |joined: bool| assert!(!joined);
        assert_eq!(coalescer.request_or_join(key("corp", "a"), joined, made_again).await, Ok(8));
    }

    /// In release builds a panic ends the process; a runtime that shuts down ends requests too.
    #[tokio::test]
    async fn request_that_ends_without_answer_frees_place() {
        let coalescer = Coalescer::new(1);
        let ended = || async { panic!("this panic is part of the test") };
        assert_eq!(
            coalescer.request_or_join(key("corp", "a"), |_| {}, ended).await,
            Err::<u8, _>(TooManyInFlight)
        );
        assert_eq!(coalescer.in_flight(), 0);
        assert_eq!(
            coalescer.request_or_join(key("corp", "b"), |_| {}, || async { 8 }).await,
            Ok(8)
        );
    }

    #[test]
    fn a_key_reads_as_it_is_documented() {
        let text = key("org.roster.Backend.corp", "alice").to_string();
        let parts = [
            "0:call:org.roster.Backend.corp",
            "org.roster.Backend1.LookUp",
            "/org/roster/Backend/corp",
            "alice",
        ];
        assert_eq!(text, parts.join(":"));
    }

    #[tokio::test]
    async fn joined_request_carries_count_of_first() {
        let coalescer = Coalescer::new(1);
        let gate = Gate::closed();
        let ask = |heard| {
            let (gate, opener) = (gate.clone(), gate.clone());
            let joined = move |joined| {
                if joined {
                    opener.open();
                }
            };
            let request = || async move {
                gate.pass().await;
                "nobody"
            };
            coalescer.request_or_join_with_count(heard, key("corp", "zoe"), joined, request)
        };
        let (first, second) = tokio::join!(ask(1), ask(2));
        assert_eq!((first, second), (Ok((1, "nobody")), Ok((1, "nobody"))));
        assert_eq!(ask(3).await, Ok((3, "nobody")));
    }
}
