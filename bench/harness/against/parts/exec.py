# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster-exec true`, each build with its own daemon."""

from contextlib import ExitStack

from ...parts import exec, sudo_setup
from ..blocks import ROUNDS_OF_CALLS


class Exec:
    name = "exec"
    programs, modules, helpers = ("roster-exec", "roster-rootwrap-daemon"), (), ("spawn",)
    load = {"corpora": "3 rules", "clients": "1 program at a time", "rate": "closed loop"}

    def __init__(self, run):
        pass

    def block(self, sides, series):
        with ExitStack() as stack:
            rooms = {}
            for name, side in sides.items():
                rooms[name] = room = stack.enter_context(sudo_setup.room(side, side.place, urgent=True))
                stack.callback(room.stop_daemon, exec.start_daemon(side, room, side.place))

            def once(name):
                ran = rooms[name].run([*exec.client(sides[name]), "/usr/bin/true"])
                if ran["status"] != 0:
                    raise RuntimeError(f"{name}: roster-exec true failed with status {ran['status']}")
                return ran["ns"]

            calls = {name: lambda name=name: once(name) for name in sides}
            series.take("roster-exec true", calls, ROUNDS_OF_CALLS)
