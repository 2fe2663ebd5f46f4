# SPDX-License-Identifier: MIT OR Apache-2.0
"""A full mirror by rosterd: from the start on an empty state until `id` answers. Each round has fresh daemons."""

import time

from ...daemons import Rosterd
from ...directory import Directory
from ...parts.id_and_getent import IdAnswer
from .directory import SHAPE, await_snapshot, loaded_server
from .programs import check


class Mirror:
    name = "mirror"
    programs, modules, helpers = ("rosterd", "roster"), ("libnss_roster.so.2",), ("spawn", "change_visibility")
    load = {"corpora": str(SHAPE), "clients": "1 daemon, 1 program at a time", "rate": "one mirror at a time"}

    def __init__(self, run):
        self.run = run
        self.answer = IdAnswer(Directory(SHAPE, run.seed).user("lite"))
        self.server = loaded_server(run)

    def block(self, sides, series):
        self.server.start()
        try:
            calls = {name: lambda side=side: self._once(side) for name, side in sides.items()}
            # No warm-up: all files of a mirror are made for it alone.
            series.take("start until id answers", calls, warm_up=0)
        finally:
            self.server.stop()

    def _once(self, side):
        with Rosterd(side, side.folder("rosterd"), self.server) as roster:
            begin = roster.start()
            await_snapshot(side, roster, begin)
            check(self.run, roster.room, ["/usr/bin/id", "lite"], self.answer)
            return time.monotonic_ns() - begin
