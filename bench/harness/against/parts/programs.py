# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whole programs, from vfork to wait: `id` of a user in 501 groups; `getent` of a user, a group, an unknown name."""

from contextlib import ExitStack

from ... import contenders as who
from ...parts import id_and_getent
from ..blocks import ROUNDS_OF_CALLS
from .lookups import SHAPE


class Programs:
    name = "programs"
    programs, modules, helpers = (), ("libnss_roster.so.2",), ("spawn",)
    load = {"corpora": str(SHAPE), "clients": "1 program at a time", "rate": "closed loop"}

    def __init__(self, run):
        self.run = run
        self.corpus = run.corpus(SHAPE)
        user = self.corpus.user_of_many_groups()
        alone, group = id_and_getent.middle_user(self.corpus), id_and_getent.middle_group(self.corpus)
        self.tests = {
            "id": (["/usr/bin/id", user.name], id_and_getent.IdAnswer(user)),
            "getent passwd NAME": (["/usr/bin/getent", "passwd", alone.split(":")[0]], id_and_getent.LineAnswer(alone)),
            "getent passwd UNKNOWN": (["/usr/bin/getent", "passwd", "no-such-user"], id_and_getent.LineAnswer("", status=2)),
            "getent group GID": (["/usr/bin/getent", "group", group.split(":")[2]], id_and_getent.LineAnswer(group)),
        }

    def block(self, sides, series):
        with ExitStack() as stack:
            rooms = {
                name: stack.enter_context(self.run.setting(side, self.corpus).room(who.ROSTER))
                for name, side in sides.items()
            }
            for test, (argv, answer) in self.tests.items():
                for room in rooms.values():
                    check(self.run, room, argv, answer)
                calls = {name: lambda room=room: room.run(argv)["ns"] for name, room in rooms.items()}
                series.take(test, calls, ROUNDS_OF_CALLS)


def check(run, room, argv, answer):
    """The program's answer is right, or the run ends."""
    ran = room.run(argv, run.answer)
    fault = answer.fault(run.answer.read_text(), ran["status"], True)
    if fault:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {fault}")
