# SPDX-License-Identifier: MIT OR Apache-2.0
"""One run of `bench/run --against`: prepares, measures all parts, judges every line.

Owns the shared data of the parts. Neighbours: `parts` defines the lines, `ratios` judges them.
"""

import copy
import os
import subprocess
import time
from pathlib import Path

from .. import contenders as who
from .. import environment
from ..corpus import synthesize
from ..folders import Folders
from ..measure import Progress, summary
from . import blocks, ratios
from .builds import NEW, OLD, SIDES
from .parts import PARTS


class Run:
    """Data that all parts share."""

    def __init__(self, work, options, builds, places, compile_helper):
        self.work, self.options, self.builds = work, options, builds
        self.seed, self.keep = options.seed, options.keep
        self.here, self.oslo = places["here"], places["oslo"]
        self.folders = Folders(work)
        self.answer = work / "answer"
        self.progress = Progress()
        self.corpora, self.snapshots = {}, {}
        self.helpers = self.folder("helpers")
        self.helpers.mkdir()
        for helper in sorted({name for part in options.parts for name in PARTS[part].helpers}):
            compile_helper(self.helpers / helper, helper)

    def folder(self, label):
        """A unique path, for the caller to make."""
        return self.folders.new(label)

    def corpus(self, shape):
        """The text of a corpus, the same for both builds."""
        if shape not in self.corpora:
            self.progress.begin(f"making {shape}")
            roster = self.builds[NEW].file("roster")
            self.corpora[shape] = synthesize(roster, shape, self.folder("corpus"), self.seed)
        return self.corpora[shape]

    def setting(self, side, corpus):
        """Namespaces of one side, with a snapshot that its own `roster compile` made from the text."""
        key = (corpus.shape, side.name)
        if key not in self.snapshots:
            folder = self.folder("snapshot")
            folder.mkdir()
            text = ["--passwd", corpus.passwd, "--group", corpus.group]
            argv = [self.builds[side.name].file("roster"), "compile", *text, "--output", folder / "roster.snap"]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            self.snapshots[key] = folder / "roster.snap"
        own = copy.copy(corpus)
        own.snapshot = Path(side.copy(self.snapshots[key]))
        return who.Setting(own, side.place / "setting", side.tools, side.modules, None, urgent=True)


def compared(run, repository, attempts, save):
    """Everything that the tables and the JSON tell. `save` gets it after each try, too: a run may be ended early."""
    start = environment.describe(repository, run.work, {})
    parts = {}
    results = {
        "origin": start,
        "builds": {side: {"folder": str(run.builds[side].folder), "commit": run.builds[side].commit} for side in SIDES},
        "limits": {"slower_above": ratios.SLOWER_ABOVE, "confidence": ratios.CONFIDENCE, "blocks": blocks.BLOCKS},
        "load": {name: PARTS[name].load for name in run.options.parts},
        "tries": [],
        "failures": [],
    }
    for attempt in range(attempts):
        begin, load_average = time.monotonic(), os.getloadavg()[0]
        lines = []
        for name in run.options.parts:
            run.progress.begin(f"against: {name}" + (f", try {attempt + 1} of {attempts}" if attempts > 1 else ""))
            try:
                if name not in parts:
                    parts[name] = PARTS[name](run)
                measured = blocks.measure(run, parts[name], attempt)
                lines += [line_of(name, line, pairs) for line, pairs in measured.items()]
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                # The other parts' lines are worth having.
                results["failures"].append(f"{name}: {error}")
        took = time.monotonic() - begin
        averages = [load_average, os.getloadavg()[0]]
        results["tries"].append({"lines": lines, "seconds": took, "load_averages": averages})
        results["origin"] |= {"load_average_after": averages[1]}
        save(results)
    for part in parts.values():
        getattr(part, "close", lambda: None)()
    run.progress.end()
    return results


def line_of(part, line, measured):
    """One line of the table. Keeps all pairs."""
    ratio = ratios.ratio_of(measured)
    rounds = sum(map(len, measured))
    if rounds < ratios.ROUNDS_MIN:
        raise RuntimeError(f"{part}: {line}: {rounds} rounds were measured, {ratios.ROUNDS_MIN} are needed.")
    return {
        "part": part,
        "line": line,
        "unit": "ns",
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
        "verdict": ratio.verdict,
        "rounds": rounds,
        **{
            side: summary([pair[number] for pairs in measured for pair in pairs])
            for number, side in enumerate((OLD, NEW))
        },
        "blocks": measured,
    }


def slower(results):
    """Names of the lines that any try found slower."""
    found = (line for each in results["tries"] for line in each["lines"] if line["verdict"] == ratios.SLOWER)
    return list(dict.fromkeys(name_of(line) for line in found))


def name_of(line):
    return f"{line['part']}: {line['line']}"
