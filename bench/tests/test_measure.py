# SPDX-License-Identifier: MIT OR Apache-2.0
"""Summaries and rounds."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.measure import rounds, summary  # noqa: E402


class Summary(unittest.TestCase):
    def test_percentiles_of_hundred_samples(self):
        found = summary(range(100, 0, -1))
        self.assertEqual((found["p50"], found["p90"], found["p99"], found["n"]), (50, 90, 99, 100))

    def test_few_samples_leave_percentiles_out(self):
        self.assertEqual({"p50", "p90", "p99"} & set(summary(range(99))), {"p50", "p90"})
        self.assertEqual({"p50", "p90", "p99"} & set(summary(range(9))), {"p50"})

    def test_single_sample_is_every_quartile(self):
        found = summary([7])
        self.assertEqual((found["median"], found["p25"], found["p75"], found["p50"]), (7, 7, 7, 7))


class Rounds(unittest.TestCase):
    def test_each_round_asks_every_contender_once(self):
        asked = []
        taken = rounds(["a", "b", "c"], 20, float("inf"), lambda name: asked.append(name) or len(asked))
        self.assertEqual({name: len(samples) for name, samples in taken.items()}, dict.fromkeys("abc", 20))
        each_round = [tuple(asked[at : at + 3]) for at in range(0, 60, 3)]
        self.assertTrue(all(sorted(order) == ["a", "b", "c"] for order in each_round))
        self.assertGreater(len(set(each_round)), 1)

    def test_seed_decides_order(self):
        def order(seed):
            asked = []
            rounds(["a", "b", "c"], 20, float("inf"), asked.append, seed=seed)
            return asked

        self.assertEqual(order(1), order(1))
        self.assertNotEqual(order(1), order(2))

    def test_spent_budget_ends_contender(self):
        self.assertEqual(len(rounds(["a"], 20, 0.0, lambda name: 1)["a"]), 0)


if __name__ == "__main__":
    unittest.main()
