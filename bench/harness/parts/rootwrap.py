# SPDX-License-Identifier: MIT OR Apache-2.0
"""Commands as root for the unchanged client of oslo.rootwrap: Roster's daemon beside that of oslo.rootwrap, sudo, and
the baseline. The baseline is `subprocess.run` of the same command by the same Python.

Everything runs as root in a private mount namespace, in which sudo may be configured.
"""

from ..measure import percentile, summary
from . import sudo_setup

OURS, OURS_STRICT, ORIGINAL, AT_ONCE = "roster", "roster, strict", "original", "no commands at all"
FLOOR = "subprocess.run"
THREADS = 32
MEGABYTES = 200
RULES = "[Filters]\n" + "".join(f"{name}: CommandFilter, {name}, root\n" for name in ("true", "wc", "sh"))


def load(bench):
    """Load shape: programs, data, repetitions."""
    rounds = f"{bench.repetitions} calls, {3 if bench.quick else 5} crowds, {3 if bench.quick else 7} times {MEGABYTES} MB"
    return {"corpora": "3 filters", "clients": [1, THREADS], "rate": "closed loop, no pause", "rounds": rounds}


def measure(bench):
    folder = bench.folder("rootwrap")
    with sudo_setup.room(bench, folder) as room:
        return Calls(bench, room, folder).measure()


class Calls:
    def __init__(self, bench, room, folder):
        self.bench, self.room = bench, room
        self.conf = {mode: conf(folder / mode, mode) for mode in ("compat", "strict")}
        tools, python = bench.tools, bench.oslo / "bin/python"
        self.python = python
        compat = str(self.conf["compat"])
        original = [str(bench.oslo / "bin/oslo-rootwrap"), compat]
        self.daemons = {
            OURS: [str(tools / "roster-rootwrap-daemon"), compat],
            OURS_STRICT: [str(tools / "roster-rootwrap-daemon"), str(self.conf["strict"])],
            ORIGINAL: [str(bench.oslo / "bin/oslo-rootwrap-daemon"), compat],
        }
        self.at_once = [str(python), str(bench.here / "rootwrap_noop_daemon.py"), compat]
        self.programs = {FLOOR: ["/bin/true"], "roster-rootwrap": [str(tools / "roster-rootwrap"), compat, "true"]}
        sudo = sudo_setup.peers(bench).get("sudo")
        if sudo:
            self.programs |= {
                "sudo": [*sudo, "/bin/true"],
                "sudo roster-rootwrap": [*sudo, *self.programs["roster-rootwrap"]],
                "sudo rootwrap": [*sudo, *original, "true"],
            }

    def measure(self):
        quick, progress = self.bench.quick, self.bench.progress
        progress.begin("commands as root, one by one")
        calls = self.timed("calls", daemons=self.daemons, programs=self.programs, repetitions=self.bench.repetitions)
        progress.begin(f"commands as root, {THREADS} threads")
        crowd = {name: self.daemons[name] for name in (OURS, ORIGINAL)} | {AT_ONCE: self.at_once}
        threads = self.timed(
            "threads", daemons=crowd, count=THREADS, seconds=2 if quick else 5, repetitions=3 if quick else 5
        )
        progress.begin(f"commands as root, {MEGABYTES} MB")
        # The original takes half a minute and gigabytes.
        through = self.daemons if self.bench.options.full else {OURS: self.daemons[OURS]}
        large = self.timed("large", daemons=through, megabytes=MEGABYTES, repetitions=3 if quick else 7)
        return {
            "calls": {name: summary(samples) for name, samples in calls.items()},
            "threads": {name: crowded(runs) for name, runs in threads.items()},
            "large": {name: streams(series) for name, series in large.items()},
        }  # fmt: skip

    def timed(self, part, **settings):
        return sudo_setup.timed(self.bench, self.room, self.python, "rootwrap_client.py", part, settings)


def conf(folder, mode):
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.filters").write_text(RULES)
    path = folder / "rootwrap.conf"
    path.write_text(f"[DEFAULT]\nfilters_path={folder}/rules\nexec_dirs=/usr/bin,/bin\nroster_mode={mode}\n")
    return path


def crowded(runs):
    """Medians over several runs of many threads."""

    def over_runs(value):
        return summary([value(run) for run in runs])

    return {
        "per_s": over_runs(lambda run: len(run["outer_ns"]) / run["wall_ns"] * 1e9),
        "p50_ns": over_runs(lambda run: percentile(run["outer_ns"], 0.5)),
        "p99_ns": over_runs(lambda run: percentile(run["outer_ns"], 0.99)),
        "max_ns": over_runs(lambda run: run["outer_ns"][-1]),
        # From when the thread has the client's lock.
        "inner_p50_ns": over_runs(lambda run: percentile(run["inner_ns"], 0.5)),
        "inner_p99_ns": over_runs(lambda run: percentile(run["inner_ns"], 0.99)),
        "least_of_thread": over_runs(lambda run: run["by_thread"][0]),
        "most_of_thread": over_runs(lambda run: run["by_thread"][-1]),
    }


def streams(series):
    """The ratio is computed from pairs: a call and the encoding right before it."""
    pairs = zip(series["stdin_ns"], series["encoding_ns"])
    return {
        **{name: summary(series[name]) for name in ("encoding_ns", "stdin_ns", "stdout_ns")},
        "stdin_ratio": summary([stdin / encoding for stdin, encoding in pairs]),
        "peak_bytes": series["peak_bytes"],
    }
