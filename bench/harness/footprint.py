# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory, processor time and written bytes of a daemon's processes, as /proc reports them.

Reads and adds up. Never starts or stops a process: daemons.py does that.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from .daemons import TICKS, family
from .mount_namespace import SNAPSHOT_NAME

PROC = Path("/proc")
SAMPLE_EVERY_S = 0.05


@dataclass
class Usage:
    """By role: processor ticks, bytes that the kernel counted as written, and cancelled writes in bytes."""

    ticks: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)
    cancelled: dict = field(default_factory=dict)

    def add(self, role, ticks, written, cancelled):
        for of, amount in ((self.ticks, ticks), (self.written, written), (self.cancelled, cancelled)):
            of[role] = of.get(role, 0) + amount

    def since(self, before):
        return Usage(
            _difference(self.ticks, before.ticks),
            _difference(self.written, before.written),
            _difference(self.cancelled, before.cancelled),
        )

    @property
    def cpu_s(self):
        return sum(self.ticks.values()) / TICKS

    @property
    def written_bytes(self):
        return sum(self.written.values())

    @property
    def cancelled_bytes(self):
        return sum(self.cancelled.values())


def usage(daemon):
    """Usage of all roles up to now. A process that ended counts for the parent that waited for it."""
    total = Usage()
    for pid in family(daemon.pid):
        try:
            role = daemon.role_of(pid)
            ticks = cpu_ticks((PROC / str(pid) / "stat").read_text())
            written, cancelled = written_bytes((PROC / str(pid) / "io").read_text())
        except OSError:
            continue
        total.add(role, ticks, written, cancelled)
    return total


def cpu_ticks(stat):
    """User and system time of a process and of its children that ended, from /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def written_bytes(io):
    """`write_bytes` and `cancelled_write_bytes`, from /proc/PID/io."""
    values = {name: int(value) for name, _, value in (line.partition(": ") for line in io.splitlines())}
    return values["write_bytes"], values["cancelled_write_bytes"]


@dataclass
class Memory:
    """Bytes by role: PSS without the pages of the snapshot file, and these pages separately."""

    pss: dict = field(default_factory=dict)
    snapshot: dict = field(default_factory=dict)
    # Pages of memfds that are open and not mapped, each memfd once: no process has them in its PSS.
    unmapped: int = 0

    @property
    def total(self):
        return sum(self.pss.values())

    def as_json(self):
        return {
            "pss": self.total,
            "pss_by_role": self.pss,
            "snapshot_pss": sum(self.snapshot.values()),
            "unmapped_memfds": self.unmapped,
        }


def memory(daemon):
    """Memory of all roles now."""
    found, memfds, shmem = Memory(), {}, 0
    for pid in family(daemon.pid):
        folder = PROC / str(pid)
        try:
            role = daemon.role_of(pid)
            rollup = kilobytes((folder / "smaps_rollup").read_text())
            # `maps` walks no page tables, so processes without the snapshot cost less.
            mapped = SNAPSHOT_NAME in (folder / "maps").read_text()
            snapshot = snapshot_pss((folder / "smaps").read_text()) if mapped else 0
            memfds |= _memfds(folder)
        except (OSError, KeyError):
            continue
        found.pss[role] = found.pss.get(role, 0) + max(0, rollup["Pss"] - snapshot)
        found.snapshot[role] = found.snapshot.get(role, 0) + snapshot
        shmem += rollup.get("Pss_Shmem", 0)
    found.unmapped = max(0, sum(memfds.values()) - shmem)
    return found


def kilobytes(text):
    """Bytes by name, from lines such as `Pss: 12 kB`. The last line of a repeated name counts."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            found[name] = int(value.split()[0]) * 1024
    return found


def snapshot_pss(smaps):
    """PSS of the mappings of the snapshot file, replaced generations included, from /proc/PID/smaps."""
    total, of_snapshot = 0, False
    for line in smaps.splitlines():
        words = line.split(maxsplit=5)
        if "-" in words[0] and not words[0].endswith(":"):
            of_snapshot = len(words) == 6 and is_snapshot(words[5])
        elif of_snapshot and words[0] == "Pss:":
            total += int(words[1]) * 1024
    return total


def is_snapshot(path):
    """The snapshot, a generation that was replaced, or the one being written."""
    name = path.removesuffix(" (deleted)").rpartition("/")[2]
    return name in (SNAPSHOT_NAME, f".{SNAPSHOT_NAME}.new")


class MemorySampler:
    """Samples the memory of a daemon's processes in a separate thread. Sampling costs the daemon time: not for runs
    that are timed."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._begin()

    def __enter__(self):
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def peak(self):
        """Since the last call, ready for JSON."""
        with self.lock:
            found = self.highest.as_json() | {
                "peak_unmapped_memfds": self.unmapped,
                "samples": self.samples,
                "longest_gap_ms": round(self.longest_gap_s * 1000),
            }
            self._begin()
        return found

    def _begin(self):
        self.highest, self.unmapped, self.samples, self.longest_gap_s = Memory(), 0, 0, 0.0

    def _sample(self):
        # On a busy machine ordinary priority would leave gaps of seconds. Only this thread gets a higher one.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        last = time.monotonic()
        while not self.stopping.wait(max(0.0, last + SAMPLE_EVERY_S - time.monotonic())):
            begin = time.monotonic()
            # The daemon may be starting or stopping.
            now = memory(self.daemon) if self.daemon.pid else Memory()
            with self.lock:
                self.longest_gap_s = max(self.longest_gap_s, begin - last)
                self.samples += 1
                self.unmapped = max(self.unmapped, now.unmapped)
                if now.total > self.highest.total:
                    self.highest = now
            last = begin


class OtherWork:
    """The share of the machine's processor time that programs outside this benchmark took."""

    def __init__(self):
        self.load_before = os.getloadavg()[0]
        self.begin = self._now()

    def as_json(self):
        busy, ours, elapsed = (now - before for now, before in zip(self._now(), self.begin))
        available = elapsed * os.cpu_count()
        return {
            "load_average": [self.load_before, os.getloadavg()[0]],
            "other_work_share": round(max(0.0, busy - ours) / available, 3) if available else None,
        }

    @staticmethod
    def _now():
        busy = busy_ticks((PROC / "stat").read_text()) / TICKS
        ours = 0
        for pid in family(os.getpid()):
            try:
                ours += cpu_ticks((PROC / str(pid) / "stat").read_text())
            except OSError:
                continue
        return busy, ours / TICKS, time.monotonic()


def busy_ticks(stat):
    """All processor time but idle and waiting, from the first line of /proc/stat."""
    user, nice, system, _idle, _waiting, irq, soft_irq, steal = map(int, stat.split("\n", 1)[0].split()[1:9])
    return user + nice + system + irq + soft_irq + steal


def _difference(after, before):
    return {role: amount - before.get(role, 0) for role, amount in after.items()}


def _memfds(folder):
    """Bytes by inode of each open memfd."""
    found = {}
    for descriptor in (folder / "fd").iterdir():
        try:
            if os.readlink(descriptor).startswith("/memfd:"):
                status = descriptor.stat()
                found[(status.st_dev, status.st_ino)] = status.st_blocks * 512
        except OSError:
            continue
    return found
