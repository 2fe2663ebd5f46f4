# SPDX-License-Identifier: MIT OR Apache-2.0
"""Blocks, turns, installed builds and the table of `bench/run --against`."""

import random
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import report  # noqa: E402
from harness.against import blocks, comparison, ratios  # noqa: E402
from harness.against import report as against_report  # noqa: E402
from harness.against.builds import ELF_MAGIC, NEW, NOTE, OLD, installed  # noqa: E402
from harness.against.parts import PARTS  # noqa: E402
from harness.folders import Folders  # noqa: E402


def install(root, *names):
    for name in names:
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ELF_MAGIC)


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def test_program_found_below_any_prefix(self):
        install(self.root, "usr/bin/roster", "usr/lib/x86_64-linux-gnu/libnss_roster.so.2")
        # Files of the same name that are not programs.
        for other in ("usr/share/bash-completion/completions/roster", "etc/apparmor.d/abstractions/nameservice.d/roster"):
            (self.root / other).parent.mkdir(parents=True)
            (self.root / other).write_text("complete")
        build = installed(OLD, self.root)
        self.assertEqual(build.file("roster"), self.root / "usr/bin/roster")
        self.assertEqual(build.file("libnss_roster.so.2").name, "libnss_roster.so.2")

    def test_missing_file_error_names_it(self):
        with self.assertRaisesRegex(RuntimeError, "rosterd is missing.*make bench-base"):
            installed(OLD, self.root).file("rosterd")

    def test_two_installations_in_folder_rejected(self):
        install(self.root, "usr/bin/roster", "usr/local/bin/roster")
        with self.assertRaisesRegex(RuntimeError, "several files are named roster"):
            installed(OLD, self.root).file("roster")

    def test_note_tells_commit(self):
        (self.root / NOTE).write_text("0123abc\n")
        self.assertEqual(installed(OLD, self.root).commit, "0123abc")

    def test_missing_folder_error_names_it(self):
        with self.assertRaisesRegex(RuntimeError, "/none: not a directory"):
            installed(OLD, self.root / "none")


class FakePart:
    """Measures a clock that the test sets."""

    name, programs, modules, helpers, load = "fake", ("roster",), (), (), {}

    def __init__(self, cost):
        self.cost, self.folders, self.order = cost, [], []

    def block(self, sides, series):
        self.folders.append({name: side.place for name, side in sides.items()})

        def once(name):
            assert (sides[name].tools / "roster").read_bytes() == ELF_MAGIC
            self.order.append(name)
            return self.cost(name)

        series.take("a line", {name: lambda name=name: once(name) for name in sides})


class Blocks(unittest.TestCase):
    def measure(self, cost, attempt=0):
        with tempfile.TemporaryDirectory() as root:
            install(root, "old/bin/roster", "new/bin/roster")
            builds = {name: installed(name, f"{root}/{name}") for name in (OLD, NEW)}
            run = SimpleNamespace(
                builds=builds, seed=1, keep=False, here=None, helpers=Path(root), folder=Folders(root).new,
                progress=SimpleNamespace(at=lambda *_: None),
            )  # fmt: skip
            part = FakePart(cost)
            lines = blocks.measure(run, part, attempt)
            self.assertFalse(any(path.exists() for each in part.folders for path in each.values()))
        return part, comparison.line_of("fake", "a line", lines["a line"])

    def test_each_block_has_fresh_folders_of_one_length(self):
        part, _ = self.measure(lambda name: 100)
        paths = [path for each in part.folders for path in each.values()]
        self.assertEqual(len(set(paths)), 2 * blocks.BLOCKS)
        self.assertEqual(len({len(str(path)) for path in paths}), 1)
        # Neither side keeps one of the two names.
        self.assertEqual({each[OLD].name for each in part.folders}, {"a", "b"})

    def test_both_sides_come_first_in_some_rounds(self):
        part, _ = self.measure(lambda name: 100)
        rounds = [tuple(part.order[at : at + 2]) for at in range(0, len(part.order), 2)]
        self.assertEqual(set(rounds), {(OLD, NEW), (NEW, OLD)})

    def test_order_is_drawn_anew_for_each_try(self):
        self.assertNotEqual(self.measure(lambda name: 100)[0].order, self.measure(lambda name: 100, attempt=1)[0].order)

    def test_rounds_are_at_least_101(self):
        _, line = self.measure(lambda name: 100)
        self.assertGreaterEqual(line["rounds"], 101)
        self.assertEqual(line["rounds"], sum(map(len, line["blocks"])))

    def test_slower_side_is_named(self):
        chance = random.Random(1)
        cost = {OLD: 100, NEW: 105}
        _, line = self.measure(lambda name: cost[name] * chance.gauss(1, 0.01))
        self.assertEqual(line["verdict"], ratios.SLOWER)
        results = {"tries": [{"lines": [line]}]}
        self.assertEqual(comparison.slower(results), ["fake: a line"])

    def test_equal_sides_are_same(self):
        chance = random.Random(1)
        _, line = self.measure(lambda name: 100 * chance.gauss(1, 0.01))
        self.assertEqual(line["verdict"], ratios.SAME)

    def test_zero_time_rejected(self):
        with self.assertRaisesRegex(RuntimeError, "a time of 0 ns"):
            self.measure(lambda name: 0)

    def test_table_has_every_column(self):
        _, line = self.measure(lambda name: 100 if name == OLD else 200)
        results = {"tries": [{"lines": [line], "seconds": 1, "load_averages": [0, 0]}], "load": {"fake": {}}}
        text = "\n".join(map(report.text_of, against_report.tables(results)))
        self.assertRegex(text, r"fake: a line +100 ns +200 ns +2\.000 +2\.000 – 2\.000 +124 +slower")
        several = results | {"tries": results["tries"] * 3}
        text = "\n".join(map(report.markdown_of, against_report.tables(several)))
        self.assertIn("| 3 | 1 | 1 | 0 | 0 | 2.000, fake: a line |", text)


class Parts(unittest.TestCase):
    def test_every_part_tells_its_load(self):
        for name, part in PARTS.items():
            self.assertEqual({"corpora", "clients", "rate"} - set(part.load), set(), name)

    def test_every_helper_has_its_source(self):
        sources = {path.stem for path in Path(__file__).resolve().parents[1].glob("*.c")}
        for name, part in PARTS.items():
            self.assertLessEqual(set(part.helpers), sources, name)


if __name__ == "__main__":
    unittest.main()
