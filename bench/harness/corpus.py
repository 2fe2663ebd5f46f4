# SPDX-License-Identifier: MIT OR Apache-2.0
"""Corpora: passwd and group text made by `roster generate`, the keys in it, and the right answers.

The answers are computed here from the text, so that every contender is held to the same truth
before it is timed.
"""

import os
import random
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# "Of 500 members" means within a tenth of it: shapes with random sizes have few groups of exactly 500.
SIZE, SIZE_TOLERANCE = 500, 50
# Fewer groups of that size than this would sit in the processor's cache, and flatter their shape.
SIZED_GROUPS_MIN = 500
SIZED_GROUPS_ADDED = 1000
# The user that `id` is timed with: 501 groups, the primary one included.
GROUPS_OF_USER = 501
CHECKED_KEYS = 200
CHECKED_USERS = 5  # initgroups: each costs a search through the whole group file
UNKNOWN_KEYS = 10_000


@dataclass(frozen=True)
class Shape:
    """The options of `roster generate`."""

    name: str
    users: int
    groups: int
    members: int
    shape: str

    def __str__(self):
        return f"{short(self.users)} × {short(self.groups)} × {self.members}, {self.shape}"


def short(number):
    """10 k, 1 M."""
    for unit, name in ((1_000_000, " M"), (1_000, " k")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


class Corpus:
    def __init__(self, shape, folder):
        self.shape = shape
        self.folder = Path(folder)
        self.passwd = self.folder / "passwd"
        self.group = self.folder / "group"
        self.snapshot = self.folder / "roster.snap"
        self.note = ""

    @property
    def text_bytes(self):
        return self.passwd.stat().st_size + self.group.stat().st_size

    def users(self):
        """Fields of each passwd line."""
        with self.passwd.open("rb") as lines:
            return [line.rstrip(b"\n").split(b":") for line in lines]

    def groups(self):
        """Name, gid and number of members of each group line."""
        found = []
        with self.group.open("rb") as lines:
            for line in lines:
                name, _, gid, members = line.rstrip(b"\n").split(b":")
                found.append((name, gid, members.count(b",") + 1 if members else 0))
        return found

    def user_of_many_groups(self):
        """The user with the number of groups nearest to GROUPS_OF_USER, and that number."""
        users = self.users()
        belonging = {}
        for fields in users:
            belonging.setdefault(fields[3], []).append(fields[0])
        groups_of = Counter(fields[0] for fields in users)  # the primary one
        with self.group.open("rb") as lines:
            for line in lines:
                head, _, members = line.rstrip(b"\n").rpartition(b":")
                members = set(members.split(b","))
                groups_of.update(members)
                # A user that is listed in its primary group, too, is in one group less.
                groups_of.subtract(members.intersection(belonging.get(head.rpartition(b":")[2], ())))
        fields = min(users, key=lambda fields: abs(groups_of[fields[0]] - GROUPS_OF_USER))
        name, uid, gid = (fields[i].decode() for i in (0, 2, 3))
        groups = self.groups_of({name.encode()})[name.encode()]
        numbers = {number.encode() for _, number in groups}
        members = sum(size for _, number, size in self.groups() if number in numbers)
        return User(name, uid, gid, tuple(groups), members)

    def groups_of(self, names):
        """Name and gid of the groups that list each of these users, in file order."""
        found = {name: [] for name in names}
        needles = {name: b"," + name + b"," for name in names}
        with self.group.open("rb") as lines:
            for line in lines:
                head, _, members = line.rstrip(b"\n").rpartition(b":")
                members = b"," + members + b","
                for name, needle in needles.items():
                    if needle in members:
                        group, _, gid = head.split(b":")
                        found[name].append((group.decode(), gid.decode()))
        return found


@dataclass(frozen=True)
class User:
    name: str
    uid: str
    gid: str
    groups: tuple  # (name, gid) of each group that lists the user
    members: int  # of all these groups together


def synthesize(roster, shape, folder, seed):
    """Makes the text of a corpus."""
    folder.mkdir(parents=True)
    subprocess.run(
        [roster, "generate", "--users", str(shape.users), "--groups", str(shape.groups), "--members", str(shape.members),
         "--shape", shape.shape, "--seed", str(seed), "--output", folder],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return Corpus(shape, folder)


def with_sized_groups(corpus, folder, seed):
    """The corpus, or if it has too few groups of about 500 members, one with such groups added."""
    sized = sum(abs(size - SIZE) <= SIZE_TOLERANCE for _, _, size in corpus.groups())
    if sized >= SIZED_GROUPS_MIN or corpus.shape.members < SIZE:
        return corpus
    folder.mkdir(parents=True)
    larger = Corpus(corpus.shape, folder)
    larger.note = (
        f"{SIZED_GROUPS_ADDED} groups of {SIZE} random members added: the shape itself has {sized} of that size"
    )
    os.link(corpus.passwd, larger.passwd)
    names = [fields[0].decode() for fields in corpus.users()]
    chance = random.Random(seed)
    free_gid = max(int(gid) for _, gid, _ in corpus.groups()) + 1
    with larger.group.open("wb") as output:
        output.write(corpus.group.read_bytes())
        for i in range(SIZED_GROUPS_ADDED):
            members = ",".join(chance.sample(names, SIZE))
            output.write(f"sized_{i}:x:{free_gid + i}:{members}\n".encode())
    return larger


class Keys:
    """Directory of key files for lookup.c, one a series, and the expected answers to the first keys."""

    def __init__(self, corpus, folder, seed):
        self.folder = folder
        folder.mkdir(parents=True)
        chance = random.Random(seed)
        users, groups = corpus.users(), corpus.groups()
        chance.shuffle(users)
        chance.shuffle(groups)
        sized = [group for group in groups if abs(group[2] - SIZE) <= SIZE_TOLERANCE]
        self.series = {
            "getpwnam": [fields[0] for fields in users],
            "getpwuid": [fields[2] for fields in users],
            "getgrnam": [name for name, _, _ in groups],
            "getgrgid": [gid for _, gid, _ in groups],
            "initgroups": [fields[0] + b"\t" + fields[3] for fields in users],
            "getpwnam.unknown": [b"unknown_%d" % chance.randrange(10**9) for _ in range(UNKNOWN_KEYS)],
        }
        if len(sized) >= SIZED_GROUPS_MIN:
            self.series["getgrgid.500"] = [gid for _, gid, _ in sized]
        for name, keys in self.series.items():
            (folder / name).write_bytes(b"\n".join(keys) + b"\n")
        self._learn_answers(corpus, users)

    def _learn_answers(self, corpus, users):
        def checked(series):
            return self.series.get(series, [])[: CHECKED_USERS if series == "initgroups" else CHECKED_KEYS]

        wanted_groups = {*checked("getgrgid"), *checked("getgrgid.500"), *checked("getgrnam")}
        lines = {}
        with corpus.group.open("rb") as text:
            for line in text:
                name, _, gid, _ = line.split(b":")
                for key in (name, gid):
                    if key in wanted_groups:
                        lines[key] = line
        user_lines = [b":".join(fields) + b"\n" for fields in users[:CHECKED_KEYS]]
        groups_of = corpus.groups_of({key.split(b"\t")[0] for key in checked("initgroups")})

        def group_list(key):
            name, primary = key.split(b"\t")
            gids = sorted((gid for _, gid in groups_of[name] if gid.encode() != primary), key=int)
            return " ".join([name.decode(), *gids]).encode() + b"\n" if gids else b"-\n"

        self.answers = {
            "getpwnam": user_lines,
            "getpwuid": user_lines,
            "getpwnam.unknown": [b"-\n"] * len(checked("getpwnam.unknown")),
            "initgroups": [group_list(key) for key in checked("initgroups")],
            **{name: [lines[key] for key in checked(name)] for name in self.series if name.startswith("getgr")},
        }

    def checksum(self, series, count, with_members=True):
        """CRC-32 that `check SERIES COUNT` of lookup.c gives if the answers are right."""
        answers = self.answers[series][:count]
        if not with_members and series.startswith("getgr"):
            answers = [answer.rpartition(b":")[0] + b":\n" for answer in answers]
        return zlib.crc32(b"".join(answers))
