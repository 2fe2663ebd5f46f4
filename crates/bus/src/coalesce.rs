//! Equal requests in flight become one: the first is made, the others wait for its answer.
//!
//! The request runs on a task of its own, so that a requester that leaves takes nothing away from
//! the others. When the role that was asked dies, the bus ends the call with an error, and with it
//! every wait.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What makes two requests the same: who asks for what of whom. The destination is part of it, or
/// the same question to two domains would look like one, and the second would never be asked. The
/// uid is that of the bus connection that asks, not of the program behind it, or 500 users with one
/// question would be 500 questions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// User id of the asking side of the bus.
    pub uid: u32,
    /// `call`, or another type of message.
    pub message: &'static str,
    /// Bus name of the role asked.
    pub destination: String,
    /// Interface and member, with a dot between them.
    pub member: &'static str,
    /// Object path.
    pub path: String,
    /// Arguments as bytes; equal arguments are equal bytes.
    pub args: Vec<u8>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, message, destination, member, path, args } = self;
        write!(f, "{uid}:{message}:{destination}:{member}:{path}:{}", args.escape_ascii())
    }
}

/// There are as many different requests in flight as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests at once")]
pub struct Busy;

type InFlight<V> = HashMap<Key, watch::Receiver<Option<V>>>;

/// Requests in flight.
pub struct Coalescer<V> {
    in_flight: Arc<Mutex<InFlight<V>>>,
    at_most: usize,
}

impl<V: Clone + Send + Sync + 'static> Coalescer<V> {
    /// Room for that many different requests at once.
    #[must_use]
    pub fn new(at_most: usize) -> Self {
        Self { in_flight: Arc::default(), at_most }
    }

    /// The answer to a request, which is made unless an equal one is in flight. `joined` is told
    /// whether one was. The request has to have a deadline of its own.
    pub async fn ask<F>(
        &self,
        key: Key,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<V, Busy>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut answer = self.join_or_start(key, joined, request)?;
        let answered = answer.wait_for(Option::is_some).await;
        // The sender goes away without an answer only if the request's task was ended.
        answered.ok().and_then(|value| value.clone()).ok_or(Busy)
    }

    fn join_or_start<F>(
        &self,
        key: Key,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Option<V>>, Busy>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = in_flight.get(&key) {
            joined(true);
            return Ok(answer.clone());
        }
        if in_flight.len() >= self.at_most {
            return Err(Busy);
        }
        joined(false);
        let (sender, receiver) = watch::channel(None);
        in_flight.insert(key.clone(), receiver.clone());
        drop(in_flight);
        let entry = Entry { in_flight: Arc::clone(&self.in_flight), key };
        let request = request();
        tokio::spawn(async move {
            let value = request.await;
            // Out of the list first: who asks from now on asks anew.
            drop(entry);
            sender.send_replace(Some(value));
        });
        Ok(receiver)
    }

    /// How many different requests are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl<V: Clone + Send + Sync + 'static> Coalescer<(u64, V)> {
    /// The same, where it matters whether something was heard since the request was made: `heard` counts
    /// that, and what comes with the answer is the count of whoever made the request, which for those who
    /// join may be an earlier one than theirs.
    pub async fn ask_after<F>(
        &self,
        heard: u64,
        key: Key,
        joined: impl FnOnce(bool),
        request: impl FnOnce() -> F,
    ) -> Result<(u64, V), Busy>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let request = || {
            let request = request();
            async move { (heard, request.await) }
        };
        self.ask(key, joined, request).await
    }
}

/// A request's place in the list, given back however its task ends.
struct Entry<V> {
    in_flight: Arc<Mutex<InFlight<V>>>,
    key: Key,
}

impl<V> Drop for Entry<V> {
    fn drop(&mut self) {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::time::sleep;

    fn key(destination: &str, name: &str) -> Key {
        Key {
            uid: 0,
            message: "call",
            destination: destination.into(),
            member: "org.roster.Backend1.LookUp",
            path: "/org/roster/Backend/corp".into(),
            args: name.into(),
        }
    }

    /// Asks from many tasks at once; gives the answers and how many requests were made.
    async fn ask_all(keys: Vec<Key>) -> (Vec<Result<usize, Busy>>, usize) {
        let coalescer = Arc::new(Coalescer::new(100));
        let made = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for key in keys {
            let (coalescer, made) = (Arc::clone(&coalescer), Arc::clone(&made));
            tasks.push(tokio::spawn(async move {
                let request = || async move {
                    sleep(Duration::from_millis(50)).await;
                    made.fetch_add(1, Ordering::Relaxed) + 1
                };
                coalescer.ask(key, |_| {}, request).await
            }));
        }
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
    async fn a_requester_that_leaves_cancels_nothing() {
        let coalescer = Arc::new(Coalescer::new(1));
        let request = || async {
            sleep(Duration::from_millis(50)).await;
            7
        };
        let first = Arc::clone(&coalescer);
        let leaver =
            tokio::spawn(async move { first.ask(key("corp", "a"), |_| {}, request).await });
        sleep(Duration::from_millis(10)).await;
        leaver.abort();
        let made_again = || async { 8 };
        assert_eq!(coalescer.ask(key("corp", "a"), |_| {}, made_again).await, Ok(7));
        assert_eq!(coalescer.ask(key("corp", "a"), |_| {}, made_again).await, Ok(8));
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
    async fn who_joins_learns_what_had_been_heard_when_the_request_was_made() {
        let coalescer = Coalescer::new(1);
        let request = || async {
            sleep(Duration::from_millis(50)).await;
            "nobody"
        };
        let ask = |heard| coalescer.ask_after(heard, key("corp", "zoe"), |_| {}, request);
        let (first, second) = tokio::join!(ask(1), ask(2));
        assert_eq!((first, second), (Ok((1, "nobody")), Ok((1, "nobody"))));
        assert_eq!(ask(3).await, Ok((3, "nobody")));
    }
}
