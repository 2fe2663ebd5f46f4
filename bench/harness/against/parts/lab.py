# SPDX-License-Identifier: MIT OR Apache-2.0
"""roster-lab against slapd: the time of a bind over connections that stay, and the client's processor time in it."""

from ...parts import lab
from ..builds import NEW, OLD

SECONDS, WARM_UP_S = 0.3, 0.1


class Lab:
    name = "lab"
    programs, modules, helpers = ("roster-lab",), (), ()
    load = {"corpora": f"{lab.USERS} users", "clients": "16 virtual users", "rate": f"closed loop, {SECONDS} s each"}

    def __init__(self, run):
        self.server = lab.Slapd(run.folder("lab-slapd"))

    def block(self, sides, series):
        self.server.start()
        processor_ns = {OLD: [], NEW: []}
        try:
            labs = {name: lab.Lab(side, SECONDS, WARM_UP_S) for name, side in sides.items()}

            def once(name):
                labs[name].server = self.server
                found = labs[name].bind_by_lab(None, "reuse")
                processor_ns[name].append(found["client_cpu_us"] * 1e3)
                return 1e9 / found["rate"]

            series.take("bind", {name: lambda name=name: once(name) for name in sides})
        finally:
            self.server.stop()
        # Taken from the same runs; the first ones warmed up.
        rounds = len(series.pairs["bind"])
        series.add("bind, client's processor", list(zip(processor_ns[OLD], processor_ns[NEW]))[-rounds:])
