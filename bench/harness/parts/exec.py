# SPDX-License-Identifier: MIT OR Apache-2.0
"""roster-exec and its library: the cost of a command with another user's rights, beside sudo, doas and the command
itself."""

import sys

from ..measure import percentile, rounds, summary
from ..mount_namespace import ALL_CPUS
from . import sudo_setup

CLIENTS = 32
MEGABYTES = 200
# Callers by name, and users with connections that hang when they are closed.
USERS = {"root": 0, "third user": 1003}
ATTACKERS = (1001, 1002)
ATTACKING_CONNECTIONS = 300
SOCKET = "/run/exec"
BARE, OURS = "true", "roster-exec"
POLICY = "".join(
    f'[[rule]]\nname = "{name}"\nusers = ["root", "third"]\ncommand = "/usr/bin/{name}"\nany_args = true\n'
    for name in ("true", "wc", "cat")
)


def load(bench):
    """Load shape: programs, data, repetitions."""
    rounds = f"{bench.repetitions * 3} calls, {3 if bench.quick else 7} crowds, {5 if bench.quick else 15} times {MEGABYTES} MB, 3 attacks of {3 if bench.quick else 20} s"
    return {"corpora": "3 rules", "clients": [1, CLIENTS], "rate": "closed loop, no pause", "rounds": rounds}


def measure(bench):
    folder = bench.folder("exec")
    folder.mkdir(parents=True)
    with sudo_setup.room(bench, folder) as room:
        pid = start_daemon(bench, room, folder)
        try:
            return Exec(bench, room).measure()
        finally:
            room.stop_daemon(pid)


def start_daemon(bench, room, folder):
    """The exec daemon in the namespace, with its policy in the directory. Returns the pid."""
    policy = folder / "exec.toml"
    policy.write_text(POLICY)
    policy.chmod(0o600)
    daemon = [bench.tools / "roster-rootwrap-daemon", "--native", "--policy", policy, "--socket", SOCKET]
    # Without a journal it writes a line for each command.
    quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh", "taskset", "-c", ALL_CPUS]
    return room.start_daemon([*quiet, *daemon], SOCKET)


def client(bench):
    """The command line of roster-exec, up to the command that it runs."""
    return [bench.tools / "roster-exec", "-s", SOCKET]


class Exec:
    def __init__(self, bench, room):
        self.bench, self.room = bench, room

    def measure(self):
        quick, progress = self.bench.quick, self.bench.progress
        progress.begin("roster-exec true")
        programs = rounds(list(self.programs()), self.bench.repetitions * 3, float("inf"), self.once, progress)
        progress.begin(f"roster_exec, {CLIENTS} clients at once")
        crowd = self.timed("crowd", count=CLIENTS, seconds=2 if quick else 5, repetitions=3 if quick else 7)
        progress.begin(f"roster_exec, {MEGABYTES} MB")
        large = self.timed("large", megabytes=MEGABYTES, repetitions=5 if quick else 15)
        progress.begin("roster-exec while two users attack")
        attack = self.attack(seconds=3 if quick else 20, repetitions=3)
        return {
            "programs": {name: summary(samples) for name, samples in programs.items()},
            "crowd": {name: crowded(runs) for name, runs in crowd.items()},
            "large": {way: paired(series) for way, series in large.items()},
            "attack": {when: attacked(runs) for when, runs in attack.items()},
        }

    def programs(self):
        calls = {BARE: [], OURS: client(self.bench)} | sudo_setup.peers(self.bench)
        return {name: [*call, "/usr/bin/true"] for name, call in calls.items()}

    def once(self, name):
        ran = self.room.run(self.programs()[name])
        if ran["status"] != 0:
            raise RuntimeError(f"{name} ended with {ran['status']}")
        return ran["ns"]

    def attack(self, **settings):
        folder = self.bench.folder("exec") / "attack"
        folder.mkdir(parents=True)
        script = self.bench.here.parent / "tests/system/python/hanging_files.py"
        settings |= {"users": USERS, "attackers": ATTACKERS, "connections": ATTACKING_CONNECTIONS}
        settings |= {"client": str(self.bench.tools / "roster-exec"), "script": str(script), "folder": str(folder)}
        return self.timed("attack", **settings)

    def timed(self, part, **settings):
        settings["socket"] = SOCKET
        return sudo_setup.timed(self.bench, self.room, sys.executable, "exec_client.py", part, settings)


def crowded(runs):
    return {
        "per_s": summary([len(run["ns"]) / run["wall_ns"] * 1e9 for run in runs]),
        **{f"p{share}_ns": summary([percentile(run["ns"], share / 100) for run in runs]) for share in (50, 99)},
    }


def attacked(runs):
    """Percentiles of all calls of each user."""
    calls = {name: sorted(ns for run in runs for ns in run[name]) for name in USERS}
    return {
        name: {"n": len(ns), **{f"p{share}_ns": percentile(ns, share / 100) for share in (50, 99)}, "max_ns": ns[-1]}
        for name, ns in calls.items()
    }


def paired(series):
    """The ratio is computed from pairs of calls that were timed one after the other."""
    ours, bare = series["roster_exec.run"], series["subprocess.run"]
    return {
        **{name: summary(samples) for name, samples in series.items()},
        "ratio": summary([one / other for one, other in zip(ours, bare)]),
    }
