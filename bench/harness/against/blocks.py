# SPDX-License-Identifier: MIT OR Apache-2.0
"""Blocks: fresh files and processes of both builds, and turns that alternate between them.

A part of the comparison is a class with `name`, `programs`, `modules`, `helpers`, `load`, `__init__(run)`, which
prepares once, and `block(sides, series)`, which measures one block. Neighbours: `ratios` judges the results of blocks,
`harness/against/parts` has the parts.
"""

import random
import shutil
from contextlib import contextmanager

from ..folders import Folders
from .builds import NEW, OLD, SIDES

# Processes of equal builds differ by 5 % (standard deviation). Such builds are named slower once in 200,000 simulated
# lines with 31 blocks, 7 times with 25, 45 times with 17. See bench/tests/test_ratios.py.
BLOCKS = 31
# 124 a line.
ROUNDS = 4
# If a block costs much more than a round: programs and calls of 1 to 10 ms; batches of lookups of 1 ms.
ROUNDS_OF_CALLS = 25
ROUNDS_OF_LOOKUPS = 45
WARM_UP_ROUNDS = 1


class Side:
    """One build within one block: copies of its files in an unused directory. The kernel gives them new pages, so that
    a lucky placement of one copy does not stay with a build.

    Has the attributes of `bench` that namespaces and daemons read."""

    peers = locust = None
    quick = True
    peer_versions = {"sudo": "", "opendoas": ""}

    def __init__(self, run, build, folder, part):
        self.name, self.place = build.side, folder
        self.folders = Folders(folder)
        self.run, self.seed = run, run.seed
        self.here, self.progress = run.here, run.progress
        self.tools, self.modules = folder / "tools", folder / "modules"
        for place, files in (
            (self.tools, [*map(build.file, part.programs), *(run.helpers / name for name in part.helpers)]),
            (self.modules, map(build.file, part.modules)),
        ):
            place.mkdir(parents=True)
            for file in files:
                shutil.copy(file, place)

    def copy(self, file):
        """A fresh copy of a file of this side, such as its snapshot."""
        return shutil.copy(file, self.place / file.name)

    def folder(self, label):
        """A unique path within the block, for the caller to make."""
        return self.folders.new(label)


class Series:
    """The pairs of times of one block, by line."""

    def __init__(self, chance):
        self.chance, self.pairs = chance, {}

    def take(self, line, once, rounds=ROUNDS, warm_up=WARM_UP_ROUNDS):
        """Rounds of a line. `once` has a call for each side that returns nanoseconds. The order of the sides is drawn
        again in each round. The first round warms up and does not count."""
        pairs = []
        for _ in range(warm_up + rounds):
            taken = {}
            for side in self.order():
                taken[side] = once[side]()
            pairs.append((taken[OLD], taken[NEW]))
        self.add(line, pairs[warm_up:])

    def add(self, line, pairs):
        """Pairs (old, new) that were measured elsewhere in turns."""
        if min(min(pair) for pair in pairs) <= 0:
            raise RuntimeError(f"{line}: a time of 0 ns was measured. Raise the work of one round.")
        self.pairs[line] = pairs

    def order(self):
        return self.chance.sample(SIDES, len(SIDES))


@contextmanager
def fresh_sides(run, part, chance):
    """Both sides of a block, by name. Their directories have paths of one length, and are assigned at random."""
    folder = run.folder(part.name)
    folders = dict(zip(chance.sample(SIDES, len(SIDES)), (folder / "a", folder / "b")))
    sides = {name: Side(run, run.builds[name], folders[name], part) for name in chance.sample(SIDES, len(SIDES))}
    try:
        yield sides
    finally:
        if not run.keep:
            shutil.rmtree(folder, ignore_errors=True)


def measure(run, part, attempt):
    """Pairs of each block, by line."""
    lines = {}
    for number in range(BLOCKS):
        chance = random.Random(f"{run.seed} {attempt} {part.name} {number}")
        series = Series(chance)
        with fresh_sides(run, part, chance) as sides:
            part.block(sides, series)
        for line, pairs in series.pairs.items():
            lines.setdefault(line, []).append(pairs)
        run.progress.at(number + 1, BLOCKS)
    return lines
