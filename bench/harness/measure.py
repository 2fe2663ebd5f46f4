# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rounds and medians.

Noise on a machine comes in stretches, so implementations are never timed one after the other. Each round runs every
implementation once, in another order. So none always runs in the wake of the same neighbour.
"""

import math
import random
import statistics
import sys
import time

# Share, and how many samples it takes.
PERCENTILES = ((50, 1), (90, 10), (99, 100))


def rounds(contenders, repetitions, budget_s, once, progress=None, seed=0):
    """Samples by contender.

    A contender whose samples have used up `budget_s` sits out the remaining rounds; it has been
    asked at least once. Slow contenders therefore have fewer samples, and their number is
    reported with them. In each round they come in another order: one that always follows the same, heavy one would
    find the processor's caches full of what is not its own.
    """
    samples = {contender: [] for contender in contenders}
    spent_s = dict.fromkeys(contenders, 0.0)
    chance = random.Random(seed)
    for turn in range(repetitions):
        for contender in chance.sample(contenders, len(contenders)):
            if spent_s[contender] >= budget_s:
                continue
            began = time.monotonic()
            samples[contender].append(once(contender))
            spent_s[contender] += time.monotonic() - began
        if progress:
            progress.at(turn + 1, repetitions)
    return samples


def summary(samples):
    """Median, quartiles, percentiles and number of the samples, ready for JSON. A percentile that fewer samples
    cannot tell from their maximum is left out: p90 of fewer than 10, p99 of fewer than 100."""
    ordered = sorted(samples)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else [ordered[0]] * 3
    return {
        "median": statistics.median(ordered),
        "p25": quartiles[0],
        "p75": quartiles[2],
        "min": ordered[0],
        "n": len(ordered),
        **{f"p{share}": percentile(ordered, share / 100) for share, n in PERCENTILES if len(ordered) >= n},
    }


def percentile(ordered, share):
    """The smallest sample that `share` of the samples do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


class Progress:
    """Shows the present measurement on one line of standard error, which is rewritten if it is a terminal."""

    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.terminal = stream.isatty()
        self.what = ""
        self.began = time.monotonic()

    def begin(self, what):
        self.what = what
        if not self.terminal:
            print(f"[{time.monotonic() - self.began:5.0f} s] {what}", file=self.stream, flush=True)
        else:
            self._show("")

    def at(self, done, of):
        if self.terminal:
            self._show(f" {done}/{of}")

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=self.stream, flush=True)

    def _show(self, detail):
        elapsed = time.monotonic() - self.began
        print(f"\r\033[K[{elapsed:5.0f} s] {self.what}{detail}", end="", file=self.stream, flush=True)
