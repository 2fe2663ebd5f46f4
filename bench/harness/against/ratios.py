# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ratio of two builds, its interval, and the verdict. Pure arithmetic: times come in, nothing is measured here.

The unit is the block. Two copies of one build differ for the life of their processes: by the pages that the
kernel gave them, by address randomisation, by the order of the heap. Rounds within a block share that difference,
so more rounds do not average it away, and an interval over single rounds would be far too narrow. Each block has
fresh processes, daemons and file copies on both sides. A block gives one number: the median over its rounds of
log(new / old), each round a pair of adjacent turns.

The interval over the blocks is that of the Wilcoxon signed-rank test, with the Hodges-Lehmann estimate in its middle.
It consists of two order statistics of the means of all pairs of blocks. See Hollander, Wolfe and Chicken, Nonparametric
Statistical Methods, 3rd ed., section 3.3, and Hodges and Lehmann 1963.

The test needs blocks that are independent and symmetric about their median. Independence comes from the fresh set-up.
Symmetry comes from the design: both sides are treated alike and take turns in random order. So the logarithm of the
ratio of equal builds has the same distribution as its negative.

No normality is needed, and one wild block cannot move a bound by more than one order statistic of pairs. An
order-statistic interval over block medians (the sign test) needs no symmetry, but takes half as many blocks again for
the same width. A cluster bootstrap of so few blocks covers less than it promises.

Figures of a simulation (bench/tests/test_ratios.py) stand beside the limits below.
"""

import functools
import math
import statistics
from dataclasses import dataclass

CONFIDENCE = 0.95
# The limits of the verdict: 3 %, either way.
SLOWER_ABOVE = 1.03
FASTER_BELOW = 1 / SLOWER_ABOVE
ROUNDS_MIN = 101  # of a line, over all its blocks
# Fewer have no interval of 95 %: even six signs that agree come about by chance once in 32 times.
BLOCKS_MIN = 6

SLOWER, FASTER, SAME, UNCLEAR = "slower", "faster", "same", "unclear"


@dataclass(frozen=True)
class Ratio:
    """New over old. `low` and `high` bound the interval."""

    median: float
    low: float
    high: float

    @property
    def verdict(self):
        """`same`: the whole interval is within the limits. `unclear`: the interval reaches over a limit, so the run
        shows neither a change nor that there is none."""
        if self.low > SLOWER_ABOVE:
            return SLOWER
        if self.high < FASTER_BELOW:
            return FASTER
        return SAME if FASTER_BELOW <= self.low and self.high <= SLOWER_ABOVE else UNCLEAR


def block_logarithm(pairs):
    """The one number of a block: the median of log(new / old) over its rounds, each (old, new)."""
    return statistics.median(math.log(new / old) for old, new in pairs)


def ratio_of(blocks):
    """The Ratio of a line, from the pairs (old, new) of each of its blocks."""
    return ratio_of_logarithms([block_logarithm(pairs) for pairs in blocks])


def ratio_of_logarithms(logarithms):
    """The Ratio, from the one number of each block."""
    count = len(logarithms)
    if count < BLOCKS_MIN:
        raise ValueError(f"blocks: {count} given, an interval needs {BLOCKS_MIN}. Measure more blocks.")
    means = sorted((a + b) / 2 for i, a in enumerate(logarithms) for b in logarithms[i:])
    outside = outside_of(count)
    low, middle, high = means[outside], statistics.median(means), means[-1 - outside]
    return Ratio(math.exp(middle), math.exp(low), math.exp(high))


@functools.cache
def outside_of(count):
    """The number of means of pairs that lie outside the interval at each end, for so many blocks. It is the largest `k`
    for which P(signed-rank statistic <= k) is at most (1 - CONFIDENCE) / 2."""
    # Element i is the number of sign combinations, of 2**count, with the rank sum i.
    ways = [1]
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    allowed = (1 - CONFIDENCE) / 2 * 2**count
    below = outside = 0
    while below + ways[outside] <= allowed:
        below += ways[outside]
        outside += 1
    return outside - 1
