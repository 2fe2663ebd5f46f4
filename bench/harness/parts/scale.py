# SPDX-License-Identifier: MIT OR Apache-2.0
"""rosterd beside slapd with syncprov, from 2,000 to 1,000,000 users: time until mirrored, memory, and the cost of one
change until a running process sees it. nslcd beside it on the same slapd.

Every change is made alone: the next one follows when the roles have become idle again. Memory is sampled in a separate
run, because sampling costs the daemon time.
"""

import os
import random
import subprocess
import time

from .. import scale_directory as sd
from ..daemons import TICKS, Nslcd, Rosterd
from ..shared_servers import SLAPD
from ..footprint import SAMPLE_EVERY_S, MemorySampler, OtherWork, memory, usage
from ..measure import percentile, summary
from ..mount_namespace import SNAPSHOT_FOLDERS, HelperDied

# Each wait has a limit, and the report names each event that exceeded it.
MIRRORED_WITHIN_S = 900
MIRRORS_WITHIN_S = 180  # all timed mirrors of a size; the one that exceeds it is the last
SEEN_WITHIN_S = 60
KIND_WITHIN_S = 900  # all changes of one kind
UNSEEN_MAX = 3  # then the rest of the kind is left out
SETTLED_WITHIN_S = 120
# The durable cache is written 0.5 s after a change was reported.
CACHE_WRITTEN_S = 0.7
QUIET_S = 0.3
# rosterd reads files of /etc when they have been unchanged for a while; the files of a new mount namespace are new.
ETC_SETTLED_S = 3
# The publisher publishes once more 10 s after it has started.
STARTED_S = 12
IDLE_S = 15
# nslcd keeps nothing, so its changes need not wait for it to become idle.
PAUSE_OF_PEER_S = 0.05
CHANGES_SAMPLED = 2  # of each kind, while memory is sampled
FAST_USERS_MAX = 500_000  # beyond it a quarter as many changes of each kind


def load(bench):
    """Load shape: programs, data, repetitions."""
    shapes = wanted_shapes(bench)
    counts = [str(rounds_of(shape, bench.quick, bench.options.changes)) for shape in shapes]
    return {
        "corpora": [str(shape) for shape in shapes],
        "clients": "1 daemon, 1 reader; 1 change at a time", "rate": "a change when all roles are idle",
        "rounds": f"up to {bench.mirrors} mirrors; {', '.join(counts)} changes of each kind",
    }  # fmt: skip


def wanted_shapes(bench):
    return [sd.SIZES[name] for name in bench.options.sizes or [*sd.SIZES][: 1 if bench.quick else None]]


def measure(bench):
    """By size."""
    result = {"method": method(bench), "sizes": {}, "limits": [], "faults": []}
    for shape in wanted_shapes(bench):
        of_size = {"shape": vars(shape) | {"teams": sd.TEAMS, "all_groups": shape.all_groups}}
        result["sizes"][str(shape)] = of_size
        of_size["began"] = time.strftime("%Y-%m-%d %H:%M:%S %z")
        other = OtherWork()
        try:
            _measure_size(bench, shape, of_size, result)
        except (OSError, RuntimeError, HelperDied, subprocess.SubprocessError) as error:
            result["faults"].append(f"{shape}: {error}")
        of_size["whole_size"] = other.as_json() | {"nice": os.nice(0)}
    return result


def method(bench):
    return {
        "server": "slapd, mdb, syncprov, rfc2307, on loopback",
        "state": f"file system {_file_system(bench.work)}",
        "mirrored": "start of rosterd with an empty state to the rename of the first snapshot",
        "memory": "PSS of all roles, the pages of the snapshot file left out",
        "sampled_every_ms": round(SAMPLE_EVERY_S * 1000),
        "processor": "user and system time of all roles, ended children included",
        "written": "write_bytes of all roles, mapped stores included",
        "seen": "LDAP request sent to first new answer through glibc in another process, a look-up each 0.2 ms",
        "load": "one change at a time; the next one when all roles have been idle for 0.3 s",
        "limits_s": {
            "mirrored": MIRRORED_WITHIN_S, "seen": SEEN_WITHIN_S, "changes of a kind": KIND_WITHIN_S,
            "settled": SETTLED_WITHIN_S,
        },
    }  # fmt: skip


def rounds_of(shape, quick, wanted=None):
    """Changes of each kind; all kinds together are at least 100 unless fewer are wanted."""
    if wanted:
        return wanted
    return 25 if quick or shape.users > FAST_USERS_MAX else 100


def _measure_size(bench, shape, result, findings):
    kind, schema = SLAPD
    bench.progress.begin(f"scale, {shape}: loading slapd")
    folder = bench.folder("scale-slapd")
    folder.mkdir(parents=True)
    server = kind(folder, schema)
    with (folder / "load").open("w") as output:
        output.writelines(sd.ldif(shape, bench.seed, schema))
        result["ldif_bytes"] = output.tell()
    begin = time.monotonic()
    server.load(folder / "load")
    result["loaded_s"] = round(time.monotonic() - begin, 1)
    (folder / "load").unlink()
    work = sd.Workload(shape, schema)
    server.start()
    try:
        with Rosterd(bench, bench.folder("scale"), server) as roster:
            result["roster"] = {}
            _roster(bench, roster, server, shape, work, result["roster"], findings)
        if bench.has_daemon(Nslcd):
            bench.progress.begin(f"scale, {shape}: nslcd")
            with Nslcd(bench, bench.folder("scale-nslcd"), server) as daemon:
                result["nslcd"] = _nslcd(bench, daemon, server, shape, work, findings)
    finally:
        server.stop()


def _roster(bench, roster, server, shape, work, result, findings):
    """Fills `result` step by step: measurements before a failure stay. `findings` takes the `faults` (wrong answers)
    and the `limits` (late events)."""
    result["within_s"] = MIRRORED_WITHIN_S
    result["mirror"] = _mirrors(bench, roster, shape)
    if result["mirror"] is None:
        findings["limits"].append(f"{shape}: not mirrored within {MIRRORED_WITHIN_S} s: {roster.said()[-500:]}")
        return
    bench.progress.begin(f"scale, {shape}: idle")
    result["idle"] = _idle(roster)
    result["snapshot_bytes"] = roster.snapshot.stat().st_size
    result["state_bytes"] = sum(path.stat().st_size for path in roster.state.rglob("*") if path.is_file())
    result["kinds"] = {}
    count = rounds_of(shape, bench.quick, bench.options.changes)
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        for kind in sd.KINDS:
            bench.progress.begin(f"scale, {shape}: {kind}")
            series = Series(bench, roster, server, work, watch, f"rosterd, {shape}", findings)
            result["kinds"][kind] = series.run(kind, count, lambda took_s: _settle(roster, took_s))
    result["idle_after_changes"] = memory(roster).as_json()
    bench.progress.begin(f"scale, {shape}: memory")
    roster.stop()
    roster.forget()
    result["peak"] = _peaks(bench, roster, server, shape, work, findings)


def _mirrors(bench, roster, shape):
    """Timed mirrors, each from an empty state; the last one stays. None when it takes too long."""
    time.sleep(ETC_SETTLED_S)
    walls, cpu, other = [], [], OtherWork()
    begin = time.monotonic()
    for turn in range(bench.mirrors):
        bench.progress.begin(f"scale, {shape}: mirror {turn + 1}")
        if turn:
            roster.stop()
            roster.forget()
        wall, cpu_s = _mirror(bench, roster)
        if wall is None:
            return None
        walls.append(wall)
        cpu.append(cpu_s)
        if time.monotonic() - begin > MIRRORS_WITHIN_S:
            break
    return {"wall_ns": summary(walls), "cpu_s": summary(cpu)} | other.as_json()


def _mirror(bench, roster):
    """Wall time until the first snapshot, and processor time until then."""
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        begin = roster.start()
        # A helper answers within minutes: a long wait needs several requests.
        while True:
            renamed = int(watch.ask(f"renamed {roster.snapshot_name} {begin} 5000")[0])
            if renamed:
                return renamed - begin, usage(roster).cpu_s
            if time.monotonic_ns() - begin > MIRRORED_WITHIN_S * 1e9:
                return None, None


def _idle(roster):
    """Memory when the mirror has settled, and the work of the roles without any change."""
    _settle(roster, STARTED_S)
    before, begin = usage(roster), time.monotonic()
    time.sleep(IDLE_S)
    spent = usage(roster).since(before)
    elapsed = time.monotonic() - begin
    return memory(roster).as_json() | {
        "cpu_s_per_s": spent.cpu_s / elapsed,
        "written_bytes_per_s": spent.written_bytes / elapsed,
    }


def _settle(roster, at_least_s):
    """Waits until all roles have been idle for a while; false when they never are."""
    time.sleep(max(CACHE_WRITTEN_S, at_least_s))
    deadline = time.monotonic() + SETTLED_WITHIN_S
    last, since = usage(roster), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(QUIET_S / 3)
        now = usage(roster)
        spent = now.since(last)
        # Timers of idle roles may move one tick.
        if sum(spent.ticks.values()) > 1 or spent.written_bytes:
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= QUIET_S:
            return True
    return False


class Series:
    """Changes of one kind, one by one, and their cost for all roles together."""

    def __init__(self, bench, daemon, server, work, watch, name, findings):
        self.bench, self.daemon, self.server, self.work = bench, daemon, server, work
        self.watch, self.name = watch, name
        self.faults, self.limits = findings["faults"], findings["limits"]

    def run(self, kind, count, settle):
        """`settle(seconds)` waits after each change, for at least that long."""
        chance = random.Random(self.bench.seed)
        seen, replied, unseen, unsettled, longest_s = [], [], 0, 0, 0.0
        settle(0)
        published = self._published()
        before, other, begin = usage(self.daemon), OtherWork(), time.monotonic()
        with self.server.connect() as connection:
            while len(seen) + unseen < count and unseen < UNSEEN_MAX:
                if time.monotonic() - begin > KIND_WITHIN_S:
                    self.limits.append(f"{self.name}: {kind}: {len(seen)} of {count} changes within {KIND_WITHIN_S} s")
                    break
                step = self.work.next(kind)
                if step is None:
                    break
                # Not in step with the 50 ms after which a reader checks for a new snapshot.
                time.sleep(chance.random() * 0.1)
                took = self._change(step, connection)
                if took is None:
                    unseen += 1
                    self.limits.append(f"{self.name}: {kind}: {step.watch}: not seen within {SEEN_WITHIN_S} s")
                else:
                    replied.append(took[0])
                    seen.append(took[1])
                    longest_s = max(longest_s, took[1] / 1e9)
                unsettled += settle(longest_s) is False
        if unsettled:
            self.limits.append(f"{self.name}: {kind}: roles still busy after {SETTLED_WITHIN_S} s, {unsettled} times")
        spent, changes = usage(self.daemon).since(before), max(1, len(seen) + unseen)
        return {
            "changes": len(seen) + unseen,
            "unseen": unseen,
            "publications": self._published() - published,
            "seen_ns": percentiles(seen),
            "server_replied_ns": percentiles(replied),
            "cpu_s_per_change": spent.cpu_s / changes,
            "cpu_s_per_change_by_role": {role: ticks / TICKS / changes for role, ticks in spent.ticks.items()},
            "written_bytes_per_change": spent.written_bytes / changes,
            "written_bytes_per_change_by_role": {role: count / changes for role, count in spent.written.items()},
            "cancelled_bytes_per_change": spent.cancelled_bytes / changes,
            "seconds": round(time.monotonic() - begin, 1),
        } | other.as_json()

    def _change(self, step, connection):
        """Nanoseconds until the server replied and until the change was seen; None when it was not."""
        before = int(self.watch.ask(step.watch)[0])
        if before != step.before:
            self.faults.append(f"{self.name}: {step.watch}: {before} before the change, not {step.before}")
        errors = self._errors()
        begin = time.monotonic_ns()
        connection.ask(step.request)
        replied = time.monotonic_ns()
        seen = int(self.watch.ask(f"seen {step.after} {SEEN_WITHIN_S * 1000}")[0])
        more = [now - then for now, then in zip(self._errors(), errors)]
        if any(more):
            self.faults.append(f"{self.name}: {step.watch}: {more[0]} errors and {more[1]} steps back")
        return (replied - begin, seen - begin) if seen else None

    def _published(self):
        return len(self.daemon.published()) if isinstance(self.daemon, Rosterd) else 0

    def _errors(self):
        """Errors and steps back that the watching process met so far."""
        _, _, _, errors, backwards = map(int, self.watch.ask("seen -1 0"))
        return errors, backwards


def percentiles(samples):
    ordered = sorted(samples)
    if not ordered:
        return None
    found = {name: percentile(ordered, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return found | {"min": ordered[0], "max": ordered[-1], "n": len(ordered)}


def _peaks(bench, roster, server, shape, work, findings):
    """Highest memory of a mirror and of a few changes, in a run that is not timed."""
    with MemorySampler(roster) as sampler:
        wall, _ = _mirror(bench, roster)
        if wall is None:
            findings["limits"].append(f"{shape}: not mirrored within {MIRRORED_WITHIN_S} s while memory was sampled")
            return None
        _settle(roster, STARTED_S)
        found = {"mirror": sampler.peak()}
        with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
            series = Series(bench, roster, server, work, watch, f"rosterd, {shape}, memory", findings)
            for kind in sd.KINDS:
                series.run(kind, CHANGES_SAMPLED, lambda took_s: _settle(roster, took_s))
        found["changes"] = sampler.peak()
    return found


def _nslcd(bench, daemon, server, shape, work, findings):
    """nslcd has no mirror: each lookup searches the directory."""
    daemon.start()
    with daemon.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        deadline = time.monotonic() + SEEN_WITHIN_S
        while int(watch.ask("user probe")[0]) < 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nslcd does not answer within {SEEN_WITHIN_S} s: {daemon.said()[-500:]}")
            time.sleep(0.02)
        result = {"idle": memory(daemon).as_json(), "kinds": {}}
        series = Series(bench, daemon, server, work, watch, f"nslcd, {shape}", findings)
        count = rounds_of(shape, bench.quick, bench.options.changes)
        with MemorySampler(daemon) as sampler:
            for kind in sd.KINDS:
                result["kinds"][kind] = series.run(kind, count, lambda _: time.sleep(PAUSE_OF_PEER_S))
            result["peak"] = sampler.peak()
    # The lookups of the watching process cost it processor time, not the changes.
    for each in result["kinds"].values():
        for name in [name for name in each if "_per_change" in name]:
            del each[name]
    return result


def _file_system(path):
    """The file system of `path`. State in memory would hide the written bytes."""
    said = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip()
    if said == "tmpfs":
        raise RuntimeError("scale: state would be on tmpfs. Choose a folder on a disk with --work")
    return said
