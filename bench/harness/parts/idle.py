# SPDX-License-Identifier: MIT OR Apache-2.0
"""The work of the roles while nothing happens: the number of wake-ups of each, and their causes.

The kernel counts wake-ups (voluntary context switches). Their causes come from a second, equally long look at the
system calls of a role. A burst of wake-ups in any roles begins with one wait. If that wait ran into its own timeout,
the cause is a timer of that role. Otherwise the cause came from outside, and is not a timer.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from ..daemons import Rosterd
from ..shared_servers import SLAPD
from .changes import _mirrored

SETTLE_S = 20
SECONDS = 30
BURST_S = 0.2


def load(bench):
    """Load shape: programs, data, repetitions."""
    return {"corpora": str(bench.field.large), "clients": "1 daemon", "rounds": f"2 looks of {SECONDS} s"}


def measure(bench):
    seconds = SECONDS
    with bench.field.serving(*SLAPD, bench.field.large) as server:
        with Rosterd(bench, bench.folder("idle"), server) as roster:
            _mirrored(bench, roster, "idle")
            bench.progress.begin(f"idle for {SETTLE_S + 2 * seconds} s")
            time.sleep(SETTLE_S)
            roles = roster.roles()
            before, cpu = {role: _switches(pid) for role, pid in roles.items()}, roster.cpu_s()
            time.sleep(seconds)
            wakeups = {role: _switches(pid) - before[role] for role, pid in roles.items()}
            result = {"seconds": seconds, "wakeups": wakeups, "cpu_s": roster.cpu_s() - cpu}
            if shutil.which("strace") and os.geteuid() == 0:
                result |= _causes(bench, roster, seconds)
    return result


def _switches(pid):
    """The switches of all threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.M)[1])
    return total


def _causes(bench, roster, seconds):
    """When timers ran out, in seconds, by role; and bursts that no timer began."""
    trace = roster.folder / "trace"
    names = {}
    for role, pid in roster.roles().items():
        for task in Path(f"/proc/{pid}/task").iterdir():
            names[int(task.name)] = role
    pids = [word for pid in roster.roles().values() for word in ("-p", str(pid))]
    subprocess.run(
        ["timeout", "--signal=INT", str(seconds), "strace", "-f", "-qq", "-ttt", "-T", "-o", trace, *pids],
        stderr=subprocess.DEVNULL,
    )
    return judged(trace.read_text(errors="replace").splitlines(), names)


def judged(lines, names):
    """From the lines of `strace -f -ttt -T`. A wait that returns 0 (or ETIMEDOUT) has timed out."""
    bursts, calls, last = [], {}, None
    for line in lines:
        found = re.match(r"^(\d+) +(\d+\.\d+) (.*?)(?: <(\d+\.\d+)>)?$", line)
        if not found:
            continue
        pid, when, rest = int(found[1]), float(found[2]), found[3]
        # A call that nothing interrupted on paper stands at its beginning.
        if found[4] and not rest.startswith("<... "):
            when += float(found[4])
        role = names.get(pid, str(pid))
        if "<unfinished" in rest or rest.startswith(("strace:", "+++", "---")):
            calls[pid] = rest
            continue
        whole = rest
        if rest.startswith("<... "):
            whole = calls.get(pid, "") + rest
        name = re.sub(r"^<\.\.\. ", "", rest).split("(")[0].split(" ")[0]
        if last is None or when - last > BURST_S:
            bursts.append({"at": when, "role": role, "cause": _cause(name, whole), "calls": 0, "roles": []})
        burst, last = bursts[-1], when
        burst["calls"] += 1
        if role not in burst["roles"]:
            burst["roles"].append(role)
    # The start of the look itself is not a wake-up.
    timers, unexplained = {}, []
    for burst in bursts[1:] if bursts and "attach" in bursts[0]["cause"] else bursts:
        if burst["cause"] == "timer":
            timers.setdefault(burst["role"], []).append(round(burst["at"] - bursts[0]["at"], 1))
        else:
            unexplained.append(f"{burst['role']}: {burst['cause']}")
    return {
        "bursts": len(bursts),
        "timers": timers,
        "unexplained": unexplained,
        "calls": sum(burst["calls"] for burst in bursts),
    }


def _cause(name, call):
    if name in ("restart_syscall",):
        return "attach"
    if re.search(r"= 0(?: \(Timeout\))?$", call) and name.startswith(("epoll", "poll", "ppoll", "select", "pselect")):
        return "timer"
    if "ETIMEDOUT" in call or (name in ("nanosleep", "clock_nanosleep") and call.endswith("= 0")):
        return "timer"
    return call.split("<")[0][:100]
