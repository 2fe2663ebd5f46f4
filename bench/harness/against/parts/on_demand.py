# SPDX-License-Identifier: MIT OR Apache-2.0
"""An on-demand domain: the first lookup of a user, which leads to a request to the server."""

from contextlib import ExitStack

from ...daemons import Rosterd
from ...directory import FIRST_UID, NAMED
from ...parts.on_demand import wait_until_ready
from ..blocks import ROUNDS_OF_CALLS
from .directory import SHAPE, loaded_server


class OnDemand:
    name = "on-demand"
    programs, modules, helpers = ("rosterd", "roster"), ("libnss_roster.so.2",), ("spawn", "lookup_latency")
    load = {"corpora": str(SHAPE), "clients": "1 daemon a side, 1 lookup at a time", "rate": "closed loop"}

    def __init__(self, run):
        self.server = loaded_server(run)

    def block(self, sides, series):
        with ExitStack() as stack:
            self.server.start()
            stack.callback(self.server.stop)
            asks = {}
            for name, side in sides.items():
                daemon = stack.enter_context(Rosterd(side, side.folder("rosterd"), self.server, mode="on-demand"))
                daemon.start()
                asks[name] = stack.enter_context(daemon.helper(side.tools / "lookup_latency"))
                wait_until_ready(daemon, asks[name])
            numbers = {name: iter(range(SHAPE.users)) for name in sides}

            def once(name):
                number = next(numbers[name])
                ns, uid, error = map(int, asks[name].ask(f"user u{number}"))
                if uid != FIRST_UID + len(NAMED) + number:
                    raise RuntimeError(f"{name}: lookup of u{number}: uid {uid}, error {error}")
                return ns

            calls = {name: lambda name=name: once(name) for name in sides}
            series.take("first lookup of a user", calls, ROUNDS_OF_CALLS)
