# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lookups in one process: straight into the module, each function; through glibc, the functions on which programs wait
most.

Processor time: neither way waits for another process.
"""

from contextlib import ExitStack

from ... import contenders as who
from ...corpus import Keys, Shape
from ...parts import lookups
from ..builds import OLD
from ..blocks import ROUNDS_OF_LOOKUPS

SHAPE = Shape("small", 10_000, 10_000, 500, "consecutive")
THROUGH_GLIBC = ("getpwnam", "initgroups")


class Lookups:
    name = "lookups"
    programs, modules, helpers = (), ("libnss_roster.so.2",), ("spawn", "lookup")
    load = {
        "corpora": str(SHAPE), "clients": "1 thread, batches of 1 ms, keys in random order over the whole corpus",
        "rate": "closed loop",
    }  # fmt: skip

    def __init__(self, run):
        self.run = run
        self.corpus = run.corpus(SHAPE)
        self.keys = Keys(self.corpus, run.folder("keys"), run.seed)
        self.functions = {"straight": tuple(self.keys.series), "glibc": THROUGH_GLIBC}
        self.counts = {}

    def block(self, sides, series):
        with ExitStack() as stack:
            rooms = {
                name: stack.enter_context(self.run.setting(side, self.corpus).room(who.ROSTER))
                for name, side in sides.items()
            }
            for way in lookups.WAYS:
                helpers = {}
                for name, side in sides.items():
                    module = [side.modules / "libnss_roster.so.2", "roster"] if way == "straight" else []
                    argv = [side.tools / "lookup", self.keys.folder, *module]
                    helpers[name] = stack.enter_context(rooms[name].helper(*argv))
                for function in self.functions[way]:
                    self._measure(series, way, function, helpers)

    def _measure(self, series, way, function, helpers):
        for name in series.order():
            ns = lookups.warm_up(helpers[name], function, len(self.keys.series[function]))
            fault = lookups.fault_of(self.keys, function, who.ROSTER, helpers[name], max(1, int(lookups.CHECK_NS / ns)))
            if fault:
                raise RuntimeError(f"{function}, {way}: {name}: {fault}")
            if name == OLD:
                # The same number on both sides and in all blocks: each pair looks the same keys up.
                self.counts.setdefault((way, function), max(1, int(lookups.BATCH_NS / ns)))
        count = self.counts[way, function]

        def once(name):
            return int(helpers[name].ask(f"time {function} {count}")[lookups.ON_PROCESSOR]) / count

        calls = {name: lambda name=name: once(name) for name in helpers}
        label = "straight" if way == "straight" else "through glibc"
        series.take(f"{function}, {label}", calls, ROUNDS_OF_LOOKUPS)
