# SPDX-License-Identifier: MIT OR Apache-2.0
"""The delay until a running process answers from a new generation, and a count of wrong answers."""

import json
import subprocess

from .. import contenders as who
from ..measure import percentile
from ..mount_namespace import ENVIRONMENT, SNAPSHOT_FOLDER, SNAPSHOT_NAME, Room

ENDS_WITHIN_S = 3600


def load(bench):
    """Load shape: programs, data, repetitions."""
    clients = f"1 reader for {bench.publications} timed generations, then a reader a processor for {bench.calls} lookups"
    return {"corpora": "64 users, 16 groups", "clients": clients, "rounds": bench.publications}


def measure(bench, publications, calls):
    folder = bench.folder("freshness")
    text = folder / "text"
    text.mkdir(parents=True)
    etc = {"nsswitch.conf": who.nsswitch("roster files"), "passwd": who.LOCAL_PASSWD, "group": who.LOCAL_GROUP}
    bench.progress.begin(f"{publications} publications, then {calls:,} look-ups under constant publishing")
    with Room(folder / "room", bench.tools, bench.modules, etc) as room:
        argv = [bench.tools / "snapshot_visibility", bench.roster, text, f"{SNAPSHOT_FOLDER}/{SNAPSHOT_NAME}", publications, calls]
        output = subprocess.check_output(room.command(*argv), text=True, env=ENVIRONMENT, timeout=ENDS_WITHIN_S)
    result = json.loads(output)
    delays = result.pop("delays_ns")
    shown = [pair for pair in delays if pair[0] != -1]
    result["never_shown"] = len(delays) - len(shown)
    if shown:
        result["delay_ns"] = _percentiles([until_seen for until_seen, _ in shown])
        result["last_old_answer_ns"] = _percentiles([until_last_old for _, until_last_old in shown])
    return result


def _percentiles(samples):
    ordered = sorted(samples)
    return {
        "p50": percentile(ordered, 0.50),
        "p99": percentile(ordered, 0.99),
        "max": ordered[-1],
        "n": len(ordered),
    }
