# SPDX-License-Identifier: MIT OR Apache-2.0
"""Statistics of `bench/run --against`: known inputs, equal builds, a build that is 5 % slower."""

import math
import random
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.against import blocks, ratios  # noqa: E402

LINES = 10_000
# Standard deviation of the difference between one process and another of the same build, and of one round.
PROCESS_BIAS, ROUND_NOISE = 0.05, 0.02
# Two processes, a few rounds a side: noise that the median of a block's rounds adds to the bias.
BLOCK_NOISE = 1.253 * ROUND_NOISE * math.sqrt(2 / blocks.ROUNDS)


def simulated(chance, slowdown=1.0, bias=PROCESS_BIAS, noise=BLOCK_NOISE):
    """The Ratio of one line. Each block draws a bias for both of its processes."""
    spread = math.hypot(bias * math.sqrt(2), noise)
    shift = math.log(slowdown)
    return ratios.ratio_of_logarithms([chance.gauss(shift, spread) for _ in range(blocks.BLOCKS)])


class Interval(unittest.TestCase):
    def test_outside_count_matches_published_table(self):
        # Two-sided 5 % critical values of the signed-rank test.
        published = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 15: 25, 17: 34, 20: 52, 25: 89, 30: 137}
        self.assertEqual({count: ratios.outside_of(count) for count in published}, published)

    def test_six_blocks_interval_is_full_range(self):
        found = ratios.ratio_of_logarithms([math.log(1 + number / 100) for number in range(6)])
        self.assertAlmostEqual(found.low, 1.00)
        self.assertAlmostEqual(found.high, 1.05)

    def test_too_few_blocks_rejected(self):
        with self.assertRaisesRegex(ValueError, "an interval needs 6"):
            ratios.ratio_of_logarithms([0.0] * 5)

    def test_equal_ratios_give_that_ratio(self):
        found = ratios.ratio_of([[(100, 110)] * 5] * 25)
        for value in (found.median, found.low, found.high):
            self.assertAlmostEqual(value, 1.1)

    def test_one_wild_block_moves_little(self):
        logarithms = [math.log(1 + number / 1000) for number in range(25)]
        calm = ratios.ratio_of_logarithms(logarithms)
        wild = ratios.ratio_of_logarithms([*logarithms[:-1], math.log(1000)])
        self.assertLess(wild.high / calm.high, 1.01)

    def test_swapped_sides_give_reciprocal(self):
        chance = random.Random(1)
        pairs = [[(chance.uniform(90, 110), chance.uniform(90, 110)) for _ in range(5)] for _ in range(25)]
        one = ratios.ratio_of(pairs)
        other = ratios.ratio_of([[(new, old) for old, new in block] for block in pairs])
        self.assertAlmostEqual(one.low * other.high, 1)
        self.assertAlmostEqual(one.median * other.median, 1)

    def test_interval_covers_in_95_percent(self):
        chance = random.Random(2)
        covered = 0
        for _ in range(2_000):
            found = simulated(chance, slowdown=1.2)
            covered += found.low <= 1.2 <= found.high
        self.assertGreaterEqual(covered / 2_000, 0.94)


class Verdict(unittest.TestCase):
    def test_verdict_follows_whole_interval(self):
        cases = {
            (1.0301, 1.05): ratios.SLOWER, (1.0299, 1.05): ratios.UNCLEAR, (0.99, 1.01): ratios.SAME,
            (0.98, 1.03): ratios.SAME, (0.98, 1.04): ratios.UNCLEAR, (0.90, 0.97): ratios.FASTER,
            (0.90, 0.98): ratios.UNCLEAR, (0.50, 2.00): ratios.UNCLEAR,
        }  # fmt: skip
        for (low, high), verdict in cases.items():
            self.assertEqual(ratios.Ratio((low + high) / 2, low, high).verdict, verdict, (low, high))


class Simulation(unittest.TestCase):
    def test_equal_builds_name_no_line(self):
        chance = random.Random(3)
        named = sum(simulated(chance).verdict == ratios.SLOWER for _ in range(LINES))
        self.assertEqual(named, 0, f"of {LINES}")

    def test_single_round_interval_would_name_lines(self):
        """The reason for blocks: rounds of one pair of processes share its bias."""
        chance = random.Random(4)
        named = 0
        for _ in range(200):
            bias = chance.gauss(0, PROCESS_BIAS) - chance.gauss(0, PROCESS_BIAS)
            rounds = [chance.gauss(bias, ROUND_NOISE * math.sqrt(2)) for _ in range(101)]
            named += ratios.ratio_of_logarithms(rounds).verdict == ratios.SLOWER
        self.assertGreater(named, 40)

    def test_five_percent_slowdown_found(self):
        # As measured of lookups: blocks differ by 1 to 1.5 %.
        chance = random.Random(5)
        found = sum(simulated(chance, 1.05, bias=0.01).verdict == ratios.SLOWER for _ in range(500))
        self.assertGreaterEqual(found, 490)

    def test_five_percent_speedup_found(self):
        chance = random.Random(6)
        found = sum(simulated(chance, 1 / 1.05, bias=0.01).verdict == ratios.FASTER for _ in range(500))
        self.assertGreaterEqual(found, 490)


if __name__ == "__main__":
    unittest.main()
