"""How soon a running process answers from a new generation, and whether it ever answers wrong."""

import json
import subprocess

from .. import contenders as who
from ..measure import percentile
from ..room import ENVIRONMENT, Room


def measure(bench, publications, calls):
    folder = bench.work / "freshness"
    text = folder / "text"
    text.mkdir(parents=True)
    etc = {"nsswitch.conf": who.nsswitch("roster files"), "passwd": who.LOCAL_PASSWD, "group": who.LOCAL_GROUP}
    bench.progress.begin(f"{publications} publications, then {calls:,} look-ups under constant publishing")
    with Room(folder / "room", bench.tools, bench.modules, etc) as room:
        argv = [bench.tools / "fresh", bench.roster, text, "/var/lib/roster/roster.snap", publications, calls]
        ran = subprocess.run(
            room.command(*argv), check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )  # fmt: skip
    result = json.loads(ran.stdout)
    delays = sorted(result.pop("delay_ns"))
    shown = [delay for delay in delays if delay != -1]
    result["never_shown"] = len(delays) - len(shown)
    if shown:
        result["delay_ns"] = {
            "p50": percentile(shown, 0.50),
            "p99": percentile(shown, 0.99),
            "max": shown[-1],
            "n": len(shown),
        }
    return result
