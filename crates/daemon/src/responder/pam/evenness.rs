//! How long it takes at the least until a password is refused. Whether somebody exists, is locked or is known
//! here must not be told by time, and a directory does less for a name that nobody has than for a wrong
//! password. So everything that is not a yes is answered at the same time after the question: when all but
//! very few of the last wrong passwords were answered, and about as much later again. Pure: no clock here.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Wrong passwords whose cost is remembered, of each domain.
const COSTS_MAX: usize = 16;
/// Those of one user: where others are refused as well, nobody says for all what that costs by being refused
/// again and again.
const OF_A_USER: usize = 4;
/// With fewer it is not known what a wrong password costs.
const COSTS_MIN: usize = 4;
/// What it takes until it is known: more than servers usually take.
const UNKNOWN: Duration = Duration::from_millis(200);
/// Never less. A cheap server is quicker than that even when it is busy.
const LEAST: Duration = Duration::from_millis(10);
/// Never more: people wait for it.
const MOST: Duration = Duration::from_secs(2);

/// What wrong passwords cost, by domain, and by uid.
#[derive(Debug)]
pub struct Evenness(HashMap<String, VecDeque<(u32, Duration)>>);

impl Evenness {
    /// Of domains in which somebody knows passwords.
    pub fn new(domains: impl Iterator<Item = String>) -> Self {
        Self(domains.map(|domain| (domain, VecDeque::new())).collect())
    }

    /// A wrong password of that user in that domain took so long.
    pub fn note(&mut self, domain: &str, uid: u32, cost: Duration) {
        if let Some(costs) = self.0.get_mut(domain) {
            let mut own = 0;
            costs.retain(|(of, _)| {
                own += usize::from(*of == uid);
                *of != uid || own < OF_A_USER
            });
            costs.truncate(COSTS_MAX - 1);
            costs.push_front((uid, cost));
        }
    }

    /// So long at the least, whoever it was and whatever it came to: which domain would know somebody who does
    /// not exist cannot be told, so the slowest counts.
    pub fn least(&self) -> Duration {
        self.0.values().map(least).max().unwrap_or(LEAST)
    }
}

/// Of one domain. One user whose passwords are slow to check makes it longer for nobody.
fn least(costs: &VecDeque<(u32, Duration)>) -> Duration {
    if costs.len() < COSTS_MIN {
        return UNKNOWN;
    }
    let mut sorted: Vec<_> = costs.iter().map(|&(_, cost)| cost).collect();
    sorted.sort_unstable();
    (sorted[(sorted.len() - 1) * 3 / 4] * 2).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    fn with(costs: &[u64]) -> Evenness {
        let mut evenness = Evenness::new(["corp".to_owned()].into_iter());
        for (uid, cost) in (1000..).zip(costs) {
            evenness.note("corp", uid, MILLIS(*cost));
        }
        evenness
    }

    #[test]
    fn a_refusal_takes_about_twice_what_most_wrong_passwords_took() {
        assert_eq!(with(&[100; 16]).least(), MILLIS(200));
        assert_eq!(with(&[100, 110, 120, 130]).least(), MILLIS(240));
        // Of the last ones.
        assert_eq!(with(&[[100; 16], [50; 16]].concat()).least(), MILLIS(100));
    }

    #[test]
    fn one_user_does_not_say_it_for_all() {
        let mut evenness = with(&[100; 16]);
        (0..100).for_each(|_| evenness.note("corp", 7, MILLIS(1)));
        assert_eq!(evenness.least(), MILLIS(200));
        let mut evenness = with(&[100; 3]);
        (0..100).for_each(|_| evenness.note("corp", 7, MILLIS(1)));
        assert_eq!(evenness.least(), MILLIS(200));
        // Where nobody else is refused it is known by that one, of whom the last ones count.
        let mut alone = with(&[]);
        for cost in [9, 9, 100, 100, 100, 100] {
            alone.note("corp", 7, MILLIS(cost));
        }
        assert_eq!(alone.least(), MILLIS(200));
    }

    #[test]
    fn a_few_slow_ones_keep_nobody_waiting() {
        assert_eq!(with(&[[100; 16].as_slice(), &[9000; 4]].concat()).least(), MILLIS(200));
        assert_eq!(with(&[9000; 16]).least(), MOST);
    }

    #[test]
    fn cheap_and_unknown_ones_take_their_time() {
        assert_eq!(with(&[1; 16]).least(), LEAST);
        assert_eq!(with(&[1; 3]).least(), UNKNOWN);
        assert_eq!(Evenness::new(std::iter::empty()).least(), LEAST);
    }

    #[test]
    fn the_slowest_domain_counts_for_all() {
        let mut evenness = Evenness::new(["corp", "lab"].map(str::to_owned).into_iter());
        for uid in 0..16 {
            evenness.note("corp", uid, MILLIS(1));
        }
        assert_eq!(evenness.least(), UNKNOWN);
        for uid in 0..16 {
            evenness.note("lab", uid, MILLIS(300));
            evenness.note("elsewhere", uid, MILLIS(900));
        }
        assert_eq!(evenness.least(), MILLIS(600));
    }
}
