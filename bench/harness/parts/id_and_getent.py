# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whole programs: `id` of a user in 501 groups, `getent` of a user, of a group and of an unknown name.

Wall time from vfork to wait, of the program as distributed, standard output to /dev/null. The processor time beside it
is the program's own, without a daemon's. It shows whether a wall time is due to other work on the machine.
"""

import re
from contextlib import ExitStack

from .. import contenders as who
from ..measure import rounds, summary

MEMBERS_MIN = 400  # of the group that getent is asked for
SLOW_BUDGET_S = 8  # samples of one contender in one test; glibc files needs 19 s for one `id`


def load(bench, corpora):
    """Load shape: programs, data, repetitions."""
    return {"corpora": corpora, "clients": "1 program at a time", "rounds": bench.repetitions}


def measure(bench, corpus, everything, with_files):
    """Summaries in ns by test and contender, for one corpus; only of `id` unless `everything`."""
    user = corpus.user_of_many_groups()
    alone, group = middle_user(corpus), middle_group(corpus)
    field = [who.FLOOR, who.FLOOR_LAST, who.ROSTER, who.ROSTER_LAST, who.NSCD, who.NSCD_COLD, who.LIBNSS_CACHE]
    field = [each for each in field if bench.has(each)]
    if with_files:
        field.append(who.FILES)

    setting = bench.setting(corpus, f"programs-{corpus.shape.shape}")
    result = {
        "corpus": str(corpus.shape),
        "user": user.name,
        "groups": len({gid for _, gid in user.groups} | {user.gid}),
        "members": user.members,
        "tests": {},
        "faults": [],
    }
    with ExitStack() as stack:
        rooms = {each: stack.enter_context(setting.room(each)) for each in field}
        nobody = stack.enter_context(setting.room(who.NOBODY))
        daemons = {each: setting.start_nscd(rooms[each]) for each in field if each is who.NSCD}

        tests = {
            "id": (["/usr/bin/id", user.name], IdAnswer(user)),
            "getent passwd NAME": (["/usr/bin/getent", "passwd", alone.split(":")[0]], LineAnswer(alone)),
            "getent passwd UNKNOWN": (["/usr/bin/getent", "passwd", "no-such-user"], LineAnswer("", status=2)),
            "getent group GID": (["/usr/bin/getent", "group", group.split(":")[2]], LineAnswer(group)),
        }
        for test, (argv, answer) in tests.items():
            if test != "id" and not everything:
                continue
            # The cold cache matters for `id` only, for which it costs hundreds of requests.
            entrants = [each for each in field if test == "id" or each is not who.NSCD_COLD]
            bench.progress.begin(f"{test}, {corpus.shape}: checking the answers")
            samples = {}
            for each in list(entrants):
                first, fault = _checked(bench, setting, rooms[each], each, argv, answer)
                if fault:
                    result["faults"].append(f"{test}: {each.name}: {fault}")
                    entrants.remove(each)
                # One run of a slow contender is enough to check it and to time it.
                elif first["ns"] > SLOW_BUDGET_S * 1e9:
                    samples[each] = [first]
                    entrants.remove(each)

            def once(each, argv=argv):
                if each in ("/bin/true", who.NOBODY.name):
                    return nobody.run(["/bin/true"] if each == "/bin/true" else [argv[0], "root"])
                if each is who.NSCD_COLD:
                    return _cold(setting, rooms[each], argv)
                return rooms[each].run(argv)

            bounds = ["/bin/true", who.NOBODY.name] if test == "id" else []
            bench.progress.begin(f"{test}, {corpus.shape}")
            samples |= rounds([*bounds, *entrants], bench.repetitions, SLOW_BUDGET_S, once, bench.progress)
            result["tests"][test] = {
                getattr(each, "name", each): _summary(samples[each]) for each in [*bounds, *field] if each in samples
            }
        for each, pid in daemons.items():
            rooms[each].stop_daemon(pid)
    return result


def _cold(setting, room, argv, output="/dev/null"):
    """The first run after the daemon started."""
    pid = setting.start_nscd(room)
    try:
        return room.run(argv, output)
    finally:
        room.stop_daemon(pid)


def _checked(bench, setting, room, contender, argv, answer):
    """The time of a run, and the fault of its answer, if any."""
    output = bench.answer
    if contender is who.NSCD_COLD:
        ran = _cold(setting, room, argv, output)
    else:
        ran = room.run(argv, output)
    return ran, answer.fault(output.read_text(), ran["status"], contender.members)


def _summary(runs):
    return summary([ran["ns"] for ran in runs]) | {"cpu_ns": summary([ran["cpu_us"] * 1000 for ran in runs])}


class LineAnswer:
    def __init__(self, line, status=0):
        self.line, self.status = line, status

    def fault(self, output, status, with_members):
        expected = self.line
        if not with_members and expected.count(":") == 3:
            expected = expected.rpartition(":")[0] + ":"
        if status != self.status:
            return f"exit status {status} instead of {self.status}"
        if output.rstrip("\n") != expected:
            return f"printed {output[:60]!r}… instead of {expected[:60]!r}…"
        return None


class IdAnswer:
    """The groups are compared as a set: their order is the service's own."""

    def __init__(self, user):
        self.user = user

    def fault(self, output, status, with_members):
        parsed = re.fullmatch(r"uid=(\d+)\((.*?)\) gid=(\d+)\S* groups=(.*)\n", output)
        if status != 0 or not parsed:
            return f"exit status {status}, printed {output[:60]!r}…"
        uid, name, gid, groups = parsed.groups()
        if (uid, name, gid) != (self.user.uid, self.user.name, self.user.gid):
            return f"is {output[:60]!r}…"
        given = {tuple(group.rstrip(")").split("(", 1)) for group in groups.split(",")}
        given = {pair for pair in given if pair[0] != gid}
        expected = {(number, name) for name, number in self.user.groups if number != gid}
        if given != expected:
            return f"{len(expected - given)} of {len(expected)} groups missing, {len(given - expected)} too many"
        return None


# A service that reads from the start of a file finds this entry after half of it.


def middle_user(corpus):
    lines = corpus.passwd.read_text().splitlines()
    return lines[len(lines) // 2]


def middle_group(corpus):
    """The first after the middle that has many members."""
    with corpus.group.open() as lines:
        for number, line in enumerate(lines):
            if number >= corpus.shape.groups // 2 and line.count(",") >= MEMBERS_MIN:
                return line.rstrip("\n")
    raise RuntimeError(f"no group of {corpus.shape} has {MEMBERS_MIN} members")
