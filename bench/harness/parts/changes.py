# SPDX-License-Identifier: MIT OR Apache-2.0
"""A change in a directory, and when a running process sees it.

One process looks the user `probe` or the group `probe` up without end while both change. Changes follow one after the
other, with pauses of random length. Other observations of each change split its time. They are the server's reply, a
witness that follows the directory as rosterd does, the rename of the snapshot, and the publisher's log.
"""

import random
import time

from .. import directory as d
from ..daemons import Nslcd, Rosterd, Sssd
from ..shared_servers import DS389, SLAPD, label
from ..ldap import ADD, DELETE, REPLACE, Witness, either, equals, modify_request
from ..measure import percentile, summary
from ..mount_namespace import SNAPSHOT_FOLDERS
from .mirror import SNAPSHOT_WITHIN_MS

SEEN_WITHIN_MS = 30_000
WITNESS_WITHIN_S = 0.5
PROBES = ("user", "group")
PARTS = ("server", "told", "fetch", "publish", "reader")
STORM = 1_000
STORM_SEEN_WITHIN_MS = 120_000


def load(bench):
    """Load shape: programs, data, repetitions."""
    field = bench.field
    return {
        "corpora": [str(shape) for shape in (field.large, field.small, field.huge) if shape],
        "clients": "1 daemon, 1 reader; 1 change at a time", "rate": "a change after 0.3 to 0.6 s of rest",
        "rounds": f"{bench.changes} changes of a user and of a group each; a storm of {STORM + 1}",
    }  # fmt: skip


def measure(bench):
    """By server and corpus."""
    field = bench.field
    result = {"roster": {}, "peers": {}, "storm": {}, "faults": []}
    plan = [(*SLAPD, field.large), (*DS389, field.large), (*SLAPD, field.small)]
    plan += [(*SLAPD, field.huge)] if field.huge else []
    for kind, schema, shape in plan:
        name = f"{label(kind, schema)}: {shape}"
        with field.serving(kind, schema, shape) as server:
            with Rosterd(bench, bench.folder("changes"), server) as roster:
                _mirrored(bench, roster, name)
                bench.progress.begin(f"{name}: changes")
                count = bench.changes if shape is not field.huge else max(10, bench.changes // 3)
                result["roster"][name] = _series(bench, roster, server, count, result["faults"], name) | {
                    "users": shape.users,
                    "server": kind.name,
                }
                if (kind, schema, shape) == (*SLAPD, field.large):
                    bench.progress.begin(f"{name}: a storm of changes")
                    result["storm"] = _storm(bench, roster, server, shape)
            if (kind, schema, shape) == (*SLAPD, field.large):
                for peer in (Sssd, Nslcd):
                    if bench.has_daemon(peer):
                        bench.progress.begin(f"{name}: a change and {peer.name}")
                        result["peers"][peer.name] = _peer(bench, peer, server)
    return result


def _mirrored(bench, roster, name):
    bench.progress.begin(f"{name}: full mirror")
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        begin = roster.start()
        if not int(watch.ask(f"renamed {roster.snapshot_name} {begin} {SNAPSHOT_WITHIN_MS}")[0]):
            raise RuntimeError(f"no snapshot: {roster.said()[-2000:]}")
    time.sleep(3)


class Probe:
    """Makes the changes that the watching process waits for."""

    def __init__(self, server):
        self.server, self.connection = server, server.connect()

    def change(self, kind, value):
        """Sets the value; returns the instants before it and of the server's reply."""
        begin = time.monotonic_ns()
        if kind == "user":
            self.connection.modify(d.user_dn("probe"), REPLACE, "gecos", f"probe {value}")
        else:
            # So many members, one more than before: u0 and those after it are there.
            attribute, member = d.member(self.server.schema, f"u{value - 1}")
            self.connection.modify(d.group_dn("probe"), ADD, attribute, member)
        return begin, time.monotonic_ns()


def _series(bench, roster, server, count, faults, name):
    chance = random.Random(bench.seed)
    probe = Probe(server)
    filter = either(equals("uid", "probe"), equals("cn", "probe"))
    witness = Witness("127.0.0.1", server.port, d.READER, d.READER_PASSWORD, d.BASE, filter)
    rows, unseen = [], 0
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        for kind in PROBES:
            value, longest_s = int(watch.ask(f"{kind} probe")[0]), 0
            for i in range(count):
                # Long enough for the effects of the last change to be over.
                time.sleep(0.3 + chance.random() * 0.3 + longest_s)
                value += 1
                begin, replied = probe.change(kind, value)
                seen, *counts = map(int, watch.ask(f"seen {value} {SEEN_WITHIN_MS}"))
                if not seen:
                    unseen += 1
                    faults.append(f"{name}: {kind} probe never showed {value}")
                    continue
                longest_s = max(longest_s, (seen - begin) / 1e9)
                renamed = int(watch.ask(f"renamed {roster.snapshot_name} {begin} 0")[0])
                rows.append((kind, begin, replied, _told(witness, begin), renamed, seen))
            _, absences, errors, backwards = counts
            if absences or errors or backwards:
                faults.append(f"{name}: {absences} absences, {errors} errors, {backwards} steps back of {kind} probe")
    witness.close()
    published = roster.published()
    return {
        "count": len(rows),
        "unseen": unseen,
        **{kind: _percentiles([row[5] - row[1] for row in rows if row[0] == kind]) for kind in PROBES},
        "all": _percentiles([row[5] - row[1] for row in rows]),
        "parts": _parts(rows, published),
    }


def _told(witness, begin):
    deadline = time.monotonic() + WITNESS_WITHIN_S
    while time.monotonic() < deadline:
        when = witness.first_since(begin)
        if when:
            return when
        time.sleep(0.005)
    return None


def _parts(rows, published):
    """Medians of four spans. The first is the server's reply. The second ends with the witness's notice of the change.
    The third, up to the beginning of the publication, has engine, notice and fetch. Then come the publication up to the
    rename, and the time up to the reader. The last four add up to the whole."""
    found = {part: [] for part in PARTS}
    for _, begin, replied, told, renamed, seen in rows:
        took = next((ms for when, ms in published if when >= renamed - 2e6), None)
        if told is None or took is None or not renamed:
            continue
        publish = took * 1e6
        found["server"].append(replied - begin)
        found["told"].append(told - begin)
        found["fetch"].append(renamed - told - publish)
        found["publish"].append(publish)
        found["reader"].append(seen - renamed)
    return {part: summary(samples) for part, samples in found.items() if samples}


def _percentiles(samples):
    ordered = sorted(samples)
    if not ordered:
        return None
    return {"p50": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99), "max": ordered[-1], "n": len(ordered)}


def _storm(bench, roster, server, shape):
    """Modifies as fast as the server takes them, half of them users and half memberships."""
    connection = server.connect()
    changes = []
    for i in range(STORM // 2):
        changes.append(modify_request(d.user_dn(f"u{i}"), REPLACE, "gecos", f"u{i} in a storm"))
        group = d.group_dn(f"g{shape.groups_of_big + 5 + i % 50}")
        # Added and removed again, so that the directory does not change.
        attribute, member = d.member(server.schema, "lite")
        how = ADD if i // 50 % 2 == 0 else DELETE
        changes.append(modify_request(group, how, attribute, member))
    with roster.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        value = int(watch.ask("user probe")[0]) + 1
        changes.append(modify_request(d.user_dn("probe"), REPLACE, "gecos", f"probe {value}"))
        time.sleep(2)
        cpu, written, io = roster.cpu_s(), len(roster.published()), roster.written_bytes()
        begin = time.monotonic_ns()
        # One after the other: the server would carry out several at once in any order.
        for change in changes:
            connection.ask(change)
        taken = time.monotonic_ns()
        seen = int(watch.ask(f"seen {value} {STORM_SEEN_WITHIN_MS}")[0])
        time.sleep(3)
        renames = int(watch.ask(f"renames {roster.snapshot_name} {begin}")[0])
    connection.close()
    return {
        "changes": len(changes),
        "server_ns": taken - begin,
        "seen_ns": seen - begin if seen else None,
        "publications": renames,
        "logged_publications": len(roster.published()) - written,
        "snapshot_bytes": roster.snapshot.stat().st_size,
        "written_bytes": roster.written_bytes() - io,
        "cpu_s": roster.cpu_s() - cpu,
    }


def _peer(bench, peer, server):
    """One change; None when it is not seen in time."""
    within_ms = bench.patience_s * 1000 if bench.options.slow else 15_000
    with peer(bench, bench.folder(f"change-{peer.name}"), server) as daemon:
        daemon.start()
        with daemon.helper(bench.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
            value = -1
            deadline = time.monotonic() + 30
            while value < 0 and time.monotonic() < deadline:
                value = int(watch.ask("user probe")[0])
            time.sleep(1)
            begin, _ = Probe(server).change("user", value + 1)
            seen = int(watch.ask(f"seen {value + 1} {within_ms}")[0])
    return {"seen_ns": seen - begin if seen else None, "within_ms": within_ms}
