# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server that is killed and comes back: the delay until a change is seen that was made right after its return.

The time runs from the server's first answer to a client that keeps trying.
"""

import time

from ..daemons import Rosterd, Sssd
from ..shared_servers import SLAPD
from ..measure import summary
from ..mount_namespace import SNAPSHOT_FOLDERS
from .changes import Probe, _mirrored

# Long ones, too: waits between attempts grow.
OUTAGES_S = (1, 3, 10, 30)
OUTAGES_QUICK_S = (1, 3)
BACK_WITHIN_MS = 60_000
SSSD_BACK_WITHIN_S = 180


def load(bench):
    """Load shape: programs, data, repetitions."""
    outages = OUTAGES_QUICK_S if bench.quick else OUTAGES_S
    return {"corpora": str(bench.field.large), "clients": "1 daemon, 1 reader", "rounds": f"outages of {outages} s"}


def measure(bench):
    shape = bench.field.large
    result = {"corpus": str(shape), "roster": [], "sssd": None, "faults": []}
    with bench.field.serving(*SLAPD, shape) as server:
        with Rosterd(bench, bench.folder("outage"), server) as roster:
            _mirrored(bench, roster, "outage")
            with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
                value = int(watch.ask("user probe")[0])
                for outage_s in OUTAGES_QUICK_S if bench.quick else OUTAGES_S:
                    bench.progress.begin(f"the server is away for {outage_s} s")
                    server.kill()
                    time.sleep(outage_s)
                    back = server.start()
                    value += 1
                    Probe(server).change("user", value)
                    seen, *counts = map(int, watch.ask(f"seen {value} {BACK_WITHIN_MS}"))
                    result["roster"].append({"outage_s": outage_s, "back_ns": seen - back if seen else None})
                    time.sleep(2)
                if any(counts[1:]):
                    result["faults"].append(f"outage: {counts[1:]} absences, errors, steps back of a mirrored user")
        seen = [each["back_ns"] for each in result["roster"] if each["back_ns"]]
        result["back_ns"] = summary(seen) | {"max": max(seen)} if seen else None
        if bench.has_daemon(Sssd) and bench.options.slow:
            bench.progress.begin("SSSD and a server that comes back")
            result["sssd"] = _sssd(bench, server)
    return result


def _sssd(bench, server):
    """Until it finds a user that it has not known before."""
    with Sssd(bench, bench.folder("outage-sssd"), server) as sssd:
        sssd.start()
        with sssd.helper(bench.tools / "lookup_latency") as ask:
            deadline = time.monotonic() + 30
            while int(ask.ask("user u0")[1]) < 0 and time.monotonic() < deadline:
                time.sleep(0.1)
            server.kill()
            ask.ask("user u1")
            time.sleep(3)
            back = server.start()
            # Each name once: that a name is not there is remembered.
            for i in range(2, 2 + SSSD_BACK_WITHIN_S * 4):
                if int(ask.ask(f"user u{i}")[1]) >= 0:
                    return {"back_ns": time.monotonic_ns() - back}
                time.sleep(0.25)
    return {"back_ns": None, "within_s": SSSD_BACK_WITHIN_S}
