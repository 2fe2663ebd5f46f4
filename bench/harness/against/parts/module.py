# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cost of the first lookup in a fresh process: dlopen of the module, and one lookup that maps the snapshot."""

from contextlib import ExitStack

from ... import contenders as who
from ..blocks import ROUNDS_OF_CALLS
from .lookups import SHAPE


class Module:
    name = "module"
    programs, modules, helpers = (), ("libnss_roster.so.2",), ("spawn", "dlopen")
    load = {"corpora": str(SHAPE), "clients": "1 fresh process at a time", "rate": "closed loop"}

    def __init__(self, run):
        self.run = run
        self.corpus = run.corpus(SHAPE)

    def block(self, sides, series):
        with ExitStack() as stack:
            rooms = {
                name: stack.enter_context(self.run.setting(side, self.corpus).room(who.ROSTER))
                for name, side in sides.items()
            }
            for number, line in enumerate(("dlopen", "first lookup")):
                calls = {name: lambda name=name: self._once(sides[name], rooms[name])[number] for name in sides}
                series.take(line, calls, ROUNDS_OF_CALLS)

    def _once(self, side, room):
        ran = room.run([side.tools / "dlopen", side.modules / "libnss_roster.so.2", "roster"], self.run.answer)
        if ran["status"] != 0:
            raise RuntimeError(f"dlopen of the {side.name} module failed with status {ran['status']}")
        return tuple(map(int, self.run.answer.read_text().split()))
