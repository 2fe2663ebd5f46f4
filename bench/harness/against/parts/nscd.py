# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster nscd`: `id` and getpwnam answered by its map, and the time that both maps take to make."""

from contextlib import ExitStack

from ... import contenders as who
from ...corpus import Keys
from ...parts import lookups, id_and_getent
from ..blocks import ROUNDS_OF_CALLS, ROUNDS_OF_LOOKUPS
from ..builds import OLD
from .lookups import SHAPE
from .programs import check

FUNCTION = "getpwnam"


class Nscd:
    name = "nscd"
    programs, modules, helpers = ("roster",), ("libnss_roster.so.2",), ("spawn", "lookup")
    load = {"corpora": str(SHAPE), "clients": "1 program, or 1 thread, at a time", "rate": "closed loop"}

    def __init__(self, run):
        self.run = run
        self.corpus = run.corpus(SHAPE)
        user = self.corpus.user_of_many_groups()
        self.argv, self.answer = ["/usr/bin/id", user.name], id_and_getent.IdAnswer(user)
        self.keys = Keys(self.corpus, run.folder("keys"), run.seed)
        self.count = None

    def block(self, sides, series):
        with ExitStack() as stack:
            rooms, helpers = {}, {}
            for name, side in sides.items():
                setting = self.run.setting(side, self.corpus)
                rooms[name] = room = stack.enter_context(setting.room(who.MAPS))
                stack.callback(room.stop_daemon, setting.start(who.MAPS, room))
                helpers[name] = stack.enter_context(room.helper(side.tools / "lookup", self.keys.folder))
                check(self.run, room, self.argv, self.answer)
            calls = {name: lambda room=room: room.run(self.argv)["ns"] for name, room in rooms.items()}
            series.take("id, by the map", calls, ROUNDS_OF_CALLS)
            self._lookups(series, helpers)
            calls = {name: lambda name=name: self._made(sides[name], rooms[name]) for name in sides}
            series.take("both maps made", calls)

    def _lookups(self, series, helpers):
        for name in series.order():
            ns = lookups.warm_up(helpers[name], FUNCTION, len(self.keys.series[FUNCTION]))
            fault = lookups.fault_of(self.keys, FUNCTION, who.MAPS, helpers[name], max(1, int(lookups.CHECK_NS / ns)))
            if fault:
                raise RuntimeError(f"{FUNCTION}, by the map: {name}: {fault}")
            if name == OLD:
                self.count = self.count or max(1, int(lookups.BATCH_NS / ns))

        def once(name):
            return int(helpers[name].ask(f"time {FUNCTION} {self.count}")[lookups.ON_PROCESSOR]) / self.count

        calls = {name: lambda name=name: once(name) for name in helpers}
        series.take(f"{FUNCTION}, by the map", calls, ROUNDS_OF_LOOKUPS)

    def _made(self, side, room):
        """The server answers an invalidation when the new map is there."""
        ns = 0
        for table in ("passwd", "group"):
            ran = room.run([side.tools / "roster", "nscd", "--invalidate", table])
            if ran["status"] != 0:
                raise RuntimeError(f"{side.name}: roster nscd --invalidate {table} failed with status {ran['status']}")
            ns += ran["ns"]
        return ns
