# SPDX-License-Identifier: MIT OR Apache-2.0
"""One changed gecos at the server, until a running process sees it.

Each side has a separate server, so that one change wakes one rosterd. The servers are assigned at random for each
block.
"""

import random
import time
from contextlib import ExitStack

from ...daemons import Rosterd
from ...parts.changes import SEEN_WITHIN_MS, Probe
from ...mount_namespace import SNAPSHOT_FOLDERS
from ..builds import SIDES
from .directory import SHAPE, await_snapshot, loaded_server

# Effects of a full mirror, such as the durable cache, are over then.
SETTLE_S = 1.5
# Effects of the last change are over, and the pause before a publication.
REST_S = 0.3
# A reader looks for a new snapshot once in this time. The rest grows by a random part of it: otherwise each change
# would come at the same moment between two looks, and a millisecond more could cost a whole interval.
LOOK_INTERVAL_S = 0.05


class Changes:
    name = "changes"
    programs, modules, helpers = ("rosterd", "roster"), ("libnss_roster.so.2",), ("spawn", "change_visibility")
    load = {
        "corpora": str(SHAPE), "clients": "1 daemon and 1 reader a side; 1 change at a time",
        "rate": f"a change after {REST_S} s of rest",
    }  # fmt: skip

    def __init__(self, run):
        self.servers = [loaded_server(run) for _ in SIDES]

    def block(self, sides, series):
        with ExitStack() as stack:
            servers = dict(zip(series.order(), self.servers))
            daemons, begun = {}, {}
            for name, side in sides.items():
                server = servers[name]
                server.start()
                stack.callback(server.stop)
                daemons[name] = roster = stack.enter_context(Rosterd(side, side.folder("rosterd"), server))
                begun[name] = roster.start()
            for name, side in sides.items():
                await_snapshot(side, daemons[name], begun[name])
            time.sleep(SETTLE_S)
            calls = {
                name: lambda side=side: self._once(side, daemons[side.name], servers[side.name])
                for name, side in sides.items()
            }
            series.take("changed gecos until seen", calls)

    def _once(self, side, roster, server):
        # A separate reader for each change: that of the other side would take processor time meanwhile.
        with roster.helper(side.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
            value = int(watch.ask("user probe")[0]) + 1
            time.sleep(REST_S + random.uniform(0, LOOK_INTERVAL_S))
            probe = Probe(server)
            begin, _ = probe.change("user", value)
            seen = int(watch.ask(f"seen {value} {SEEN_WITHIN_MS}")[0])
            probe.connection.close()
        if not seen:
            raise RuntimeError(f"{side.name}: change {value} was not seen within {SEEN_WITHIN_MS / 1000:.0f} s")
        return seen - begin
