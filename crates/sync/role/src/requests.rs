// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of requests: each request that a role receives from a program or an administrator gets one, and the log
//! lines of all roles that work on it have it. `roster_messages` has the number of the current request.

use crate::usdt_probes::next_trace_number;
use roster_messages::RequestNumber;
use tracing::debug;

/// Returns a number for a request of a program.
#[must_use]
pub fn next_number() -> RequestNumber {
    RequestNumber(next_trace_number())
}

/// Returns the number that came with a call, or a new one for a call without a number.
#[must_use]
pub fn number_of_call(number: u64) -> RequestNumber {
    if number == 0 { next_number() } else { RequestNumber(number) }
}

/// Does an administrator's request with a new number.
pub async fn admin_request<F: Future>(what: &'static str, work: F) -> F::Output {
    let work = async {
        debug!("administrator's request: {what}");
        work.await
    };
    next_number().scope(work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_of_administrator_has_own_number() {
        let work = async || RequestNumber::current();
        let (first, second) =
            (admin_request("one", work()).await, admin_request("two", work()).await);
        assert!(first.is_set() && first != second, "{first} {second}");
        assert_eq!(number_of_call(first.0), first);
        assert!(number_of_call(0).is_set());
    }
}
