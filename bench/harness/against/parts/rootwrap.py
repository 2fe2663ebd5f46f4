# SPDX-License-Identifier: MIT OR Apache-2.0
"""One call of the unchanged oslo.rootwrap client, in both modes of the daemon."""

from ...parts import sudo_setup, rootwrap
from ..blocks import ROUNDS_OF_CALLS, WARM_UP_ROUNDS
from ..builds import NEW, OLD

MODES = ("compat", "strict")


class Rootwrap:
    name = "rootwrap"
    programs, modules, helpers = ("roster-rootwrap-daemon",), (), ("spawn",)
    load = {"corpora": "3 filters", "clients": "1 thread, 1 client for each daemon", "rate": "closed loop"}

    def __init__(self, run):
        self.python = run.oslo / "bin/python"

    def block(self, sides, series):
        first = next(iter(sides.values()))
        daemons = {
            f"{name}, {mode}": [str(side.tools / "roster-rootwrap-daemon"), str(rootwrap.conf(side.place / mode, mode))]
            for name, side in sides.items()
            for mode in MODES
        }
        rounds, seed = WARM_UP_ROUNDS + ROUNDS_OF_CALLS, series.chance.randrange(2**32)
        settings = {"daemons": daemons, "programs": {}, "repetitions": rounds, "seed": seed}
        with sudo_setup.room(first, first.place) as room:
            taken = sudo_setup.timed(first, room, self.python, "rootwrap_client.py", "calls", settings)
        for mode in MODES:
            pairs = list(zip(taken[f"{OLD}, {mode}"], taken[f"{NEW}, {mode}"]))
            series.add(f"true, {mode}", pairs[WARM_UP_ROUNDS:])
