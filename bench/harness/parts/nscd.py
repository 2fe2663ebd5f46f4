# SPDX-License-Identifier: MIT OR Apache-2.0
"""Below the baseline of name services: `roster nscd` beside Debian's nscd, the module and the baseline, on one corpus.
Its maps are on a tmpfs with ordinary pages and on one with huge pages.

The part measures `id` of a user in 501 groups, also as the first program after the daemon's start. It measures lookups
inside one process, `ls -l` of many owners, the time to build maps, and the time until a new generation is seen.
"""

import os
import re
import time
from contextlib import ExitStack

from .. import contenders as who
from ..corpus import Shape
from ..measure import percentile, rounds, summary
from ..mount_namespace import SNAPSHOT_FOLDER, SNAPSHOT_NAME
from . import lookups
from .id_and_getent import IdAnswer

FIRSTS = 15
FILES = 10_000
SLOW_BUDGET_S = 8
FIELD = (who.FLOOR, who.ROSTER, who.NSCD, who.MAPS, who.MAPS_HUGE)
SEEN_WITHIN_MS = 20_000
# Users of the corpus for counted generations. It is small, so that the time to build maps does not dominate.
SMALL_USERS = 100
SMALL = Shape("small", 10_000, 10_000, 500, "consecutive")
HUGE = Shape("huge", 1_000_000, 1_000_000, 10, "consecutive")
TINY = Shape("tiny", SMALL_USERS, SMALL_USERS, 10, "consecutive")


def load(bench):
    """Load shape: programs, data, repetitions."""
    corpora = [SMALL, TINY] if bench.quick else [SMALL, HUGE, TINY]
    return {
        "corpora": [*map(str, corpora)], "clients": "1 program, or 1 thread, at a time",
        "rounds": f"{bench.repetitions} of programs, {bench.batches} of lookups, {bench.publications} generations",
    }  # fmt: skip


def measure(bench):
    result = {"faults": []}
    corpus = bench.corpus(SMALL)
    if not corpus.snapshot.exists():
        _compile(bench, corpus)
    field = [each for each in FIELD if bench.has(each)]
    result["programs"] = _programs(bench, corpus, field, result["faults"])
    result["lookups"] = lookups.measure(bench, corpus, [], [each for each in field if each is not who.FLOOR])
    result["single"] = _single(bench, corpus, field)
    result["made"] = {str(corpus.shape): _made(bench, corpus)}
    result["seen"] = _seen(bench)
    if not bench.quick:
        huge = bench.corpus(HUGE)
        if not huge.snapshot.exists():
            _compile(bench, huge)
        result["made"][str(huge.shape)] = _made(bench, huge)
        result["lookups of many"] = lookups.measure(bench, huge, [], [who.ROSTER, who.MAPS, who.MAPS_HUGE])
    of_many = result.get("lookups of many", {"faults": []})
    result["faults"] += result["lookups"]["faults"] + of_many["faults"]
    return result


def _compile(bench, corpus):
    argv = [bench.roster, "compile", "--passwd", corpus.passwd, "--group", corpus.group, "--output", corpus.snapshot]
    who.checked([*map(str, argv)])


def _programs(bench, corpus, field, faults):
    user = corpus.user_of_many_groups()
    setting = bench.setting(corpus, "nscd-programs")
    argv = ["/usr/bin/id", user.name]
    made = {"corpus": str(corpus.shape), "user": user.name}
    with ExitStack() as stack:
        rooms = {each: stack.enter_context(setting.room(each)) for each in field}
        daemons = [each for each in field if each.daemon or each.maps]

        bench.progress.begin("the first `id` after the daemon's start")

        def first(each):
            pid = setting.start(each, rooms[each])
            try:
                return rooms[each].run(argv)["ns"]
            finally:
                rooms[each].stop_daemon(pid)

        firsts = min(FIRSTS, bench.repetitions)
        made["first id"] = {each.name: summary(taken) for each, taken in rounds(daemons, firsts, 30, first).items()}
        pids = {each: setting.start(each, rooms[each]) for each in daemons}
        answer = IdAnswer(user)
        for each in field:
            output = bench.answer
            ran = rooms[each].run(argv, output)
            fault = answer.fault(output.read_text(), ran["status"], each.members)
            if fault:
                faults.append(f"id: {each.name}: {fault}")

        bench.progress.begin("id")
        taken = rounds(field, bench.repetitions, SLOW_BUDGET_S, lambda each: rooms[each].run(argv)["ns"])
        made["id"] = {each.name: summary(samples) for each, samples in taken.items()}

        # nscd is included: it has to query once for each.
        bench.progress.begin(f"ls -l of {FILES:,} files of {FILES:,} owners")
        owned = bench.folder("owned")
        if os.geteuid() == 0:
            _own(owned, corpus)
            many = [each for each in field if each.members]
            for each in many:
                rooms[each].run(["/bin/ls", "-l", owned])
            run = lambda each: rooms[each].run(["/bin/ls", "-l", owned])["ns"]  # noqa: E731
            listed = rounds(many, min(11, bench.repetitions), 60, run)
            made["ls -l"] = {each.name: summary(samples) for each, samples in listed.items()}
        for each, pid in pids.items():
            rooms[each].stop_daemon(pid)
    return made


def _own(folder, corpus):
    folder.mkdir()
    groups = corpus.groups()
    for number, fields in enumerate(corpus.users()[:FILES]):
        file = folder / f"f{number}"
        file.touch()
        os.chown(file, int(fields[2]), int(groups[number % len(groups)][1]))


def _single(bench, corpus, field):
    """The same key again and again: an unknown name, a local user, and a user that only nss-systemd knows."""
    keys = bench.folder("nscd-keys")
    keys.mkdir()
    series = {
        "an unknown name, again": ("getpwnam.unknown-again", "nobody-of-that-name"),
        "a local user": ("getpwnam.local", "root"),
        "a user of nss-systemd": ("getpwnam.systemd", "nobody"),
    }
    for file, key in series.values():
        (keys / file).write_text(f"{key}\n")
    setting = bench.setting(corpus, "nscd-single")
    made = {}
    with ExitStack() as stack:
        helpers = {}
        for each in (each for each in field if each.daemon or each.maps or each is who.ROSTER):
            room = stack.enter_context(setting.room(each))
            (room.etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
            (room.etc / "group").write_text("root:x:0:\n")
            (room.etc / "nsswitch.conf").write_text(who.nsswitch("files roster systemd"))
            if each.daemon or each.maps:
                stack.callback(room.stop_daemon, setting.start(each, room))
            helpers[each] = stack.enter_context(room.helper(bench.tools / "lookup", keys))
        for what, (file, _) in series.items():
            bench.progress.begin(f"{what}, again and again")

            def once(each, file=file):
                return int(helpers[each].ask(f"time {file} 2000")[0]) / 2000

            for each in helpers:
                helpers[each].ask(f"time {file} 100")
            taken = rounds(list(helpers), bench.batches, 3, once)
            made[what] = {each.name: summary(samples) for each, samples in taken.items()}
    return made


def _made(bench, corpus):
    """Milliseconds that both maps take, and their bytes, as the server tells them."""
    setting = bench.setting(corpus, f"nscd-made-{corpus.shape.users}")
    bench.progress.begin(f"maps of {corpus.shape}")
    with setting.room(who.MAPS) as room:
        pid = setting.start(who.MAPS, room)
        samples, said = [], ""
        for _ in range(min(5, bench.builds)):
            output = bench.answer
            for table in ("passwd", "group"):
                room.run([bench.roster, "nscd", "--invalidate", table])
            room.run([bench.roster, "nscd", "--statistics"], output)
            said = output.read_text()
            samples.append(sum(map(int, re.findall(r"made in (\d+) ms", said))) * 1_000_000)
        room.stop_daemon(pid)
    bytes_of = re.findall(r"a map of (\d+) bytes", said)
    shape = [corpus.shape.users, corpus.shape.groups, corpus.shape.members]
    return {"shape": shape, "ns": summary(samples), "bytes": dict(zip(("passwd", "group"), map(int, bytes_of), strict=True))}


def _seen(bench):
    """From the rename of a snapshot, or of /etc/passwd, to the first lookup that shows it, by a program that does
    nothing else. nscd follows files only."""
    folder = bench.folder("nscd-seen")
    folder.mkdir()
    corpus = bench.corpus(TINY)
    _compile(bench, corpus)
    base = corpus.passwd.read_text()
    setting = bench.setting(corpus, "nscd-seen-room")

    def publish(room, number):
        passwd = folder / "passwd"
        passwd.write_text(f"{base}probe:x:99999:99999:probe {number}:/:/bin/sh\n")
        published = room.var_lib / "roster/snap" / SNAPSHOT_NAME
        if number == 1:
            published.unlink()
        argv = ["compile", "--passwd", passwd, "--group", corpus.group, "--output", published]
        who.checked([str(bench.roster), *map(str, argv)])

    def edit(room, number):
        fresh = room.etc / "passwd.fresh"
        fresh.write_text(f"{base}probe:x:99999:99999:probe {number}:/:/bin/sh\n")
        fresh.rename(room.etc / "passwd")

    made = {}
    for each in (who.ROSTER, who.MAPS):
        watched = (SNAPSHOT_FOLDER, SNAPSHOT_NAME)
        made[each.name] = _seen_by(bench, setting, each, publish, watched)
    for each in (who.MAPS_OF_FILES, who.NSCD_OF_FILES):
        if bench.has(each):
            made[each.name] = _seen_by(bench, setting, each, edit, ("/etc", "passwd"))
    return made


def _seen_by(bench, setting, each, change, watched):
    folder, file = watched
    bench.progress.begin(f"a new generation seen: {each.name}")
    delays, backwards, unseen = [], 0, 0
    with setting.room(each) as room:
        if each.daemon:
            # nscd's default: it checks its files.
            conf = room.etc / "nscd.conf"
            conf.write_text(re.sub(r"(check-files \w+) no", r"\1 yes", conf.read_text()))
        pid = setting.start(each, room) if each.maps or each.daemon else None
        with room.helper(bench.tools / "change_visibility", folder) as watch:
            for number in range(1, bench.publications + 1):
                begin = time.monotonic_ns()
                change(room, number)
                if number == 1:
                    deadline = time.monotonic() + SEEN_WITHIN_MS / 1000
                    while int(watch.ask("user probe")[0]) != 1 and time.monotonic() < deadline:
                        time.sleep(0.01)
                    continue
                seen, *_, backwards = map(int, watch.ask(f"seen {number} {SEEN_WITHIN_MS}"))
                renamed = int(watch.ask(f"renamed {file} {begin} 0")[0])
                if seen and renamed:
                    delays.append(seen - renamed)
                else:
                    unseen += 1
        if pid:
            room.stop_daemon(pid)
    delays.sort()
    return {
        "p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99), "max": delays[-1], "n": len(delays),
        "backwards": backwards, "unseen": unseen,
    }  # fmt: skip
