# SPDX-License-Identifier: MIT OR Apache-2.0
"""A directory mirrored whole: its time, its cost, and the time of `id` right after it and after a reboot with the
directory down. SSSD and nslcd beside it, as far as they do the same.
"""

import time

from ..contenders import FLOOR_LAST
from ..daemons import MemoryPeak, Nslcd, Rosterd, Sssd
from ..directory import BASE, USER_ATTRIBUTES, as_reader
from ..shared_servers import DS389, SLAPD, SLAPD_BIS, label
from ..ldap import equals, message, search_request
from ..measure import summary
from ..mount_namespace import SNAPSHOT_FOLDERS
from .id_and_getent import IdAnswer

SNAPSHOT_WITHIN_MS = 60_000
READY_WITHIN_S = 60
# The durable cache follows within a second, and memory settles.
SETTLE_S = 5
IDLE_S = 15


def load(bench):
    """Load shape: programs, data, repetitions."""
    rounds = f"{bench.mirrors} mirrors a server, {bench.ids} `id` after each"
    return {"corpora": str(bench.field.large), "clients": "1 daemon, 1 program at a time", "rounds": rounds}


def measure(bench):
    """By server and schema: of rosterd, and of the peers."""
    shape = bench.field.large
    result = {"corpus": str(shape), "roster": {}, "peers": {}, "faults": []}
    user = bench.field.directory(shape).user("big")
    with bench.setting(Groups(bench), "mirror-floor").room(FLOOR_LAST) as floor:
        for kind, schema in (SLAPD, SLAPD_BIS, DS389):
            with bench.field.serving(kind, schema, shape) as server:
                name = label(kind, schema)
                result["roster"][name] = _roster(bench, server, floor, user, name, result["faults"])
                first = (kind, schema) == SLAPD
                for peer in (Sssd, Nslcd):
                    if bench.has_daemon(peer) and (first or bench.options.slow):
                        bench.progress.begin(f"{name}: {peer.name}")
                        measured = _peer(bench, peer, server, user, name, result["faults"])
                        result["peers"].setdefault(name, {})[peer.name] = measured
    return result


class Groups:
    """The baseline's data of the directory: `big`, and all groups."""

    def __init__(self, bench):
        directory = bench.field.directory(bench.field.large)
        self.big = directory.passwd_line("big").encode().split(b":")
        folder = bench.folder("groups-of-big")
        folder.mkdir()
        self.group = folder / "group"
        with self.group.open("w") as output:
            for name, gid, members in directory.groups():
                output.write(f"{name}:x:{gid}:{'big' if 'big' in members else ''}\n")

    def users(self):
        return [self.big]


def _roster(bench, server, floor, user, name, faults):
    shape = bench.field.large
    walls, first_ids, later_ids, floor_ids, cpu_first, cpu_settled = [], [], [], [], [], []
    with Rosterd(bench, bench.folder("mirror"), server) as roster:
        bench.progress.begin(f"{name}: bare searches for everything")
        bare = [_bare_enumeration(bench, roster, server) for _ in range(bench.mirrors)]
        bench.progress.begin(f"{name}: full mirrors of {shape}")
        for turn in range(bench.mirrors):
            if turn:
                roster.stop()
                roster.forget()
            wall, cpu_s = first_mirror(bench, roster)
            walls.append(wall)
            cpu_first.append(cpu_s)
            first_ids.append(_id(bench, roster, user, faults, f"{name}, after a full mirror"))
            time.sleep(SETTLE_S)
            cpu_settled.append(roster.cpu_s())
            for _ in range(bench.ids):
                later_ids.append(_id(bench, roster, user, faults, f"{name}, mirrored"))
                floor_ids.append(_floor_id(bench, floor, user, faults))
        bench.progress.begin(f"{name}: memory")
        time.sleep(IDLE_S)
        memory_idle = roster.memory()
        snapshot_bytes = roster.snapshot.stat().st_size
        after_boot = _reboots(bench, roster, server, user, name, faults)
        roster.stop()
        roster.forget()
        with MemoryPeak(roster) as memory:
            first_mirror(bench, roster)
            time.sleep(SETTLE_S)
        return {
            "wall_ns": summary(walls),
            "bare_search_ns": summary(bare),
            "cpu_until_snapshot_s": summary(cpu_first),
            "cpu_settled_s": summary(cpu_settled),
            "id_first_ns": summary(first_ids),
            "id_ns": summary(later_ids),
            "id_floor_ns": summary(floor_ids),
            "id_after_boot_ns": after_boot,
            "snapshot_bytes": snapshot_bytes,
            "idle": _sums(memory_idle),
            "idle_by_role": memory_idle,
            "peak": memory.peak,
            "peak_by_role": memory.at_peak,
            # The highest that each role ever was: an upper bound of any moment's sum.
            "peak_of_roles": sum(each["peak_rss"] for each in roster.memory().values()),
        }


def _bare_enumeration(bench, roster, server):
    """The time that the server alone takes to send everything, to a client that reads nothing of it."""
    with roster.helper(bench.tools / "lookup_latency") as ask:
        ask.ask(f"connect {server.port} {as_reader()}")
        group_attributes = ("cn", "gidNumber", "memberUid", "member", "uniqueMember")
        wanted = {"posixAccount": USER_ATTRIBUTES, "posixGroup": group_attributes}
        requests = [search_request(BASE, equals("objectClass", kind), each) for kind, each in wanted.items()]
        return sum(int(ask.ask(f"search {message(2, request).hex()}")[0]) for request in requests)


def first_mirror(bench, roster):
    """From an empty state to the first snapshot: wall time and processor time."""
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        begin = roster.start()
        renamed = int(watch.ask(f"renamed {roster.snapshot_name} {begin} {SNAPSHOT_WITHIN_MS}")[0])
        cpu_s = roster.cpu_s()
    if not renamed:
        raise RuntimeError(f"no snapshot after {SNAPSHOT_WITHIN_MS / 1000:.0f} s: {roster.said()[-2000:]}")
    return renamed - begin, cpu_s


def _id(bench, daemon, user, faults, where, within_s=600):
    return _id_in(bench, daemon.room, user, faults, f"{daemon.name}, {where}", within_s)


def _floor_id(bench, room, user, faults):
    return _id_in(bench, room, user, faults, "floor", 600)


def _id_in(bench, room, user, faults, who, within_s):
    output = bench.answer
    ran = room.run(["timeout", str(within_s), "/usr/bin/id", user.name], output)
    fault = IdAnswer(user).fault(output.read_text(), ran["status"], True)
    if fault:
        faults.append(f"id {user.name}, {who}: {fault}")
    return ran["ns"]


def _reboots(bench, roster, server, user, name, faults):
    """`id` right after a start of the daemon on its old state, with no directory and cold files."""
    bench.progress.begin(f"{name}: reboots with the directory down")
    found = []
    for _ in range(bench.mirrors):
        roster.stop()
        server.kill()
        roster.read_from_disk()
        roster.start()
        found.append(_id(bench, roster, user, faults, f"{name}, after a reboot"))
        time.sleep(1)
        found.append(_id(bench, roster, user, faults, f"{name}, a second after a reboot"))
        server.start()
    return {"first": summary(found[0::2]), "later": summary(found[1::2])}


def _peer(bench, peer, server, user, name, faults):
    """Cold and warm `id`, memory before and after, and `id` when restarted with the directory down."""
    lite = bench.field.directory(bench.field.large).user("lite")
    limit = bench.patience_s
    with peer(bench, bench.folder(f"peer-{peer.name}"), server) as daemon:
        begin = daemon.start()
        ready = _wait_until_ready(bench, daemon)
        memory_before = _sums(daemon.memory())
        result = {"ready_ns": ready - begin, "id_lite_cold_ns": _id(bench, daemon, lite, faults, name)}
        cold = _id_or_none(bench, daemon, user, faults, name, limit)
        result["id_big_cold_ns"] = cold
        result["limit_s"] = limit
        if cold is not None:
            warm = [_id(bench, daemon, user, faults, f"{name}, warm", limit) for _ in range(5)]
            result["id_big_warm_ns"] = summary(warm)
        result["memory_idle"], result["memory_after"] = memory_before, _sums(daemon.memory())
        result["cpu_s"] = daemon.cpu_s()
        server.kill()
        if cold is not None:
            # Its state stays, as on a disk.
            offline = daemon.room.run(["timeout", "30", "/usr/bin/id", user.name], bench.answer)
            result["id_big_offline_ns"] = offline["ns"] if offline["status"] == 0 else None
        server.start()
        return result


def _id_or_none(bench, daemon, user, faults, name, limit):
    """The time of `id`, None if it was given up."""
    found = []
    taken = _id(bench, daemon, user, found, name, limit)
    if taken >= limit * 1e9:
        return None
    faults += found
    return taken


def _wait_until_ready(bench, daemon):
    deadline = time.monotonic() + READY_WITHIN_S
    with daemon.helper(bench.tools / "lookup_latency") as ask:
        while int(ask.ask("user u0")[1]) < 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{daemon.name} does not answer: {daemon.said()[-2000:]}")
            time.sleep(0.02)
        return time.monotonic_ns()


def _sums(memory):
    return {field: sum(each[field] for each in memory.values()) for field in ("pss", "rss", "anonymous")}
