# SPDX-License-Identifier: MIT OR Apache-2.0
"""The daemons that serve users and groups of a directory on a host: rosterd, and its peers SSSD and nslcd. Each runs in
a private mount namespace, configured for one directory server.

Peers come from unpacked packages, laid over the room's /usr. Their state is in memory, as fast as
can be; rosterd's is on disk.
"""

import json
import os
import shutil
import threading
import time
from datetime import datetime
from functools import cached_property
from pathlib import Path

from . import contenders as who
from . import directory as d
from .mount_namespace import ALL_CPUS, OLD_SNAPSHOT_NAME, Room, SNAPSHOT_NAME

# Packages of each peer; of the libraries, only ones that a bare machine lacks.
SSSD_PACKAGES = (
    "sssd-common", "sssd-ldap", "sssd-krb5-common", "libnss-sss", "libsss-idmap0", "libsss-nss-idmap0",
    "libsss-certmap0", "libdhash1", "libini-config5", "libref-array1", "libcollection4", "libpath-utils1",
    "libbasicobjects0", "libldb2", "libtalloc2", "libtdb1", "libtevent0", "libc-ares2", "libnfsidmap1",
    "libnl-3-200", "libnl-route-3-200", "libpopt0", "libkeyutils1", "libsemanage2", "libsemanage-common", "libpam-sss",
)  # fmt: skip
NSLCD_PACKAGES = ("nslcd", "libnss-ldapd")

# The users that rosterd's roles run under, as packaging makes them.
ROLES = ("roster-bus", "roster-publisher", "roster-nss", "roster-pam", "roster-metrics", *(f"roster-backend-{i}" for i in range(8)))
ROLES_FIRST_UID = 800

# Keys of roster.toml that older builds of a comparison know by another name.
OLD_KEYS = {"argon2_target_time": "password_hash_time"}

START_WITHIN_S = 60
TICKS = os.sysconf("SC_CLK_TCK")
# Offset to CLOCK_MONOTONIC, the clock of all other times here.
WALL_CLOCK_AHEAD_NS = time.time_ns() - time.monotonic_ns()


class Daemon:
    """A daemon in its room, and all the processes that it starts. Used as a context."""

    name = ""
    services = ""
    packages = ()
    mounts = ""

    def __init__(self, bench, folder, server, **settings):
        self.bench, self.folder, self.server, self.settings = bench, folder, server, settings
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        self.pid = None
        etc = {"nsswitch.conf": who.nsswitch(self.services), "passwd": LOCAL_PASSWD, "group": LOCAL_GROUP}
        self.room = Room(
            folder / "room", bench.tools, bench.modules, etc | self.files(), mounts=self._overlay() + self.mounts
        )
        for name in self.files():
            (self.room.etc / name).chmod(0o600)

    def __enter__(self):
        self.room.__enter__()
        return self

    def __exit__(self, *_):
        if self.pid:
            self.stop()
        self.room.__exit__()

    def files(self):
        """Further files of /etc, readable by root alone."""
        return {}

    def start(self):
        """Returns the instant before it."""
        begin = time.monotonic_ns()
        into_log = f'exec "$@" </dev/null 2>>{self.log}'
        self.pid = self.room.launcher.start(
            ["taskset", "-c", ALL_CPUS, "sh", "-c", into_log, "sh", *map(str, self.command())]
        )
        return begin

    def stop(self):
        self.room.stop_daemon(self.pid)
        self.pid = None

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def roles(self):
        """Process by its role."""
        return {self.role_of(pid): pid for pid in family(self.pid)}

    def role_of(self, pid):
        return Path(f"/proc/{pid}/comm").read_text().strip()

    def cpu_s(self):
        """Processor time of all processes, including ended ones."""
        return sum(_cpu_ticks(pid) for pid in family(self.pid)) / TICKS

    def memory(self):
        """Bytes by role: `pss`, `rss`, `peak_rss`."""
        found = {}
        for role, pid in self.roles().items():
            try:
                found[role] = _memory(pid)
            except OSError:
                continue
        return found

    def written_bytes(self):
        """The bytes that all running processes have written to the file system."""
        return sum(_io(pid) for pid in family(self.pid))

    def helper(self, *argv):
        return self.room.helper(*argv)

    def _overlay(self):
        if not self.packages:
            return ""
        layers = ":".join(str(self.bench.peers / package / "usr") for package in self.packages)
        return f"mount -t overlay overlay -o lowerdir={layers}:/usr /usr && "


class Rosterd(Daemon):
    """`settings` are further keys of the domain, or None to leave a key out; keys with a dict as value are tables."""

    name = "roster"
    services = "files roster"
    mounts = "mkdir /run/roster && "

    def files(self):
        keys = {
            "provider": "ldap", "uris": [self.server.uri], "base": d.BASE, "schema": self.server.schema,
            "bind_dn": d.READER, "bind_password_file": "/etc/roster/corp.password", "allow_clear_password": True,
        } | self.settings  # fmt: skip
        keys = {key: value for key, value in keys.items() if value is not None}
        for new, old in OLD_KEYS.items():
            if new in keys and not self._names(new):
                keys[old] = keys.pop(new)
        tables = {f"domain.corp.{key}": keys.pop(key) for key in list(keys) if isinstance(keys[key], dict)}
        tables = {"host": {"domains": ["corp"]}, "log": {"json": True}, "domain.corp": keys} | tables
        return {
            "roster/roster.toml": "\n".join(_table(name, of) for name, of in tables.items()),
            "roster/corp.password": d.READER_PASSWORD,
        }

    @property
    def state(self):
        return self.room.var_lib / "roster"

    @property
    def snapshot(self):
        places = (self.state / "snap" / self.snapshot_name, self.state / self.snapshot_name)
        return next((place for place in places if place.exists()), places[0])

    @cached_property
    def snapshot_name(self):
        """The name that this build publishes under."""
        return SNAPSHOT_NAME if self._names(SNAPSHOT_NAME) else OLD_SNAPSHOT_NAME

    def _names(self, text):
        """Whether this build has the text, as a key or a file name of its version."""
        return text.encode() in (self.bench.tools / "rosterd").read_bytes()

    def command(self):
        # Without root there is one user only.
        state = [] if os.geteuid() == 0 else ["--state-dir", "/var/lib/roster"]
        return [self.bench.tools / "rosterd", *state]

    def role_of(self, pid):
        words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        if words[1:2] == ["role"]:
            return words[2]
        return "bus" if words[0].endswith("dbus-daemon") else "monitor"

    def published(self):
        """The publisher's log of each publication: the instant after it, and the times to merge, build, verify and
        write, in ms."""
        found = []
        for line in self.said().splitlines():
            if '"published"' in line:
                fields = json.loads(line)
                when = datetime.fromisoformat(fields["time"]).timestamp() * 1e9 - WALL_CLOCK_AHEAD_NS
                found.append((when, int(fields["ms"])))
        return found

    def forget(self):
        """Removes its cache and its snapshot, as on a host without an earlier run."""
        for path in self.state.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        # To be watched from the start on.
        (self.state / "snap").mkdir()

    def read_from_disk(self):
        """Drops the page cache of its files, as in a reboot."""
        for path in (path for path in self.state.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Sssd(Daemon):
    """`settings` are further options of the domain."""

    name = "sssd"
    responders = "nss"
    sections = ""
    services = "files sss"
    packages = SSSD_PACKAGES
    mounts = (
        "mount -t tmpfs tmpfs /var/lib/sss && "
        "(cd /var/lib/sss && mkdir -p db mc pipes/private pubconf/krb5.include.d gpo_cache secrets deskprofile) && "
        "mount -t tmpfs tmpfs /var/log && mkdir /var/log/sssd && "
    )

    def __init__(self, bench, folder, server, **settings):
        (folder / "room/var-lib/sss").mkdir(parents=True)
        super().__init__(bench, folder, server, **settings)

    def files(self):
        keys = {
            "id_provider": "ldap", "auth_provider": "none", "chpass_provider": "none", "access_provider": "permit",
            "sudo_provider": "none", "autofs_provider": "none", "ldap_uri": self.server.uri,
            "ldap_search_base": d.BASE, "ldap_schema": self.server.schema, "ldap_default_bind_dn": d.READER,
            "ldap_default_authtok": d.READER_PASSWORD,
        } | self.settings  # fmt: skip
        domain = "".join(f"{key} = {value}\n" for key, value in keys.items())
        services = f"[sssd]\nservices = {self.responders}\ndomains = corp\n\n[nss]\n\n{self.sections}"
        return {"sssd/sssd.conf": f"{services}[domain/corp]\n{domain}"}

    def command(self):
        return ["/usr/sbin/sssd", "-i"]


class Nslcd(Daemon):
    name = "nslcd"
    services = "files ldap"
    packages = NSLCD_PACKAGES

    def files(self):
        member = "map group member member\n" if self.server.schema == d.RFC2307BIS else ""
        return {
            "nslcd.conf": f"uid root\ngid root\nuri {self.server.uri}\nbase {d.BASE}\nbinddn {d.READER}\n"
            f"bindpw {d.READER_PASSWORD}\n{member}"
        }

    def command(self):
        return ["/usr/sbin/nslcd", "--nofork"]


LOCAL_PASSWD = who.LOCAL_PASSWD + "".join(
    f"{name}:x:{ROLES_FIRST_UID + i}:{ROLES_FIRST_UID}::/nonexistent:/usr/sbin/nologin\n" for i, name in enumerate(ROLES)
)
LOCAL_GROUP = who.LOCAL_GROUP + f"roster:x:{ROLES_FIRST_UID}:\n"


class MemoryPeak:
    """Samples the memory of a daemon's processes. Sampling costs the daemon time: not for runs that are timed."""

    EVERY_S = 0.05

    def __init__(self, daemon):
        self.daemon = daemon
        self.peak = {"pss": 0, "rss": 0}
        self.at_peak = {}
        self.stopping = threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def _look(self):
        while not self.stopping.wait(self.EVERY_S):
            try:
                now = self.daemon.memory()
            except OSError:
                continue
            pss = sum(each["pss"] for each in now.values())
            if pss > self.peak["pss"]:
                self.at_peak = now
            self.peak["pss"] = max(self.peak["pss"], pss)
            self.peak["rss"] = max(self.peak["rss"], sum(each["rss"] for each in now.values()))


def family(pid):
    """A process and all that descend from it."""
    found = [pid]
    for each in found:
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _cpu_ticks(pid):
    """Ticks of a process and of its children that ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def _memory(pid):
    """The memory of a process. Unmapped pages of files in memory (memfd) count for each process that holds them open,
    too.
    """
    fields = {}
    for path in (f"/proc/{pid}/smaps_rollup", f"/proc/{pid}/status"):
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                fields[name] = int(value.split()[0]) * 1024
    unmapped = max(0, _memfd_bytes(pid) - fields.get("Pss_Shmem", 0))
    return {
        "pss": fields["Pss"] + unmapped,
        "rss": fields["Rss"] + unmapped,
        "anonymous": fields["Pss_Anon"],
        "peak_rss": fields["VmHWM"],
    }


def _memfd_bytes(pid):
    total = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(descriptor).startswith("/memfd:"):
                total += descriptor.stat().st_blocks * 512
        except OSError:
            continue
    return total


def _io(pid):
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return 0
    return int(text.split("write_bytes: ")[1].split()[0])


def _table(name, keys):
    return f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def _toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'
