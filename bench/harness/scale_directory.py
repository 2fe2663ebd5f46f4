# SPDX-License-Identifier: MIT OR Apache-2.0
"""Directories of the part `scale`: their sizes, their LDIF, and the changes that are made in them.

Users are u0, u1, … and `probe`. Groups are g0, g1, … and `team0` to `team3`, which have 500 members
in every size. Nothing here talks to a server.
"""

import random
from dataclasses import dataclass

from . import directory as d
from .ldap import ADD, DELETE, REPLACE, add_request, delete_request, modify_request

TEAMS, MEMBERS_OF_TEAM = 4, 500
KINDS = ("gecos", "membership", "user added", "user removed")


@dataclass(frozen=True)
class ScaleShape:
    """`groups` counts the teams if `members` is at least 500; otherwise they are additional."""

    users: int
    groups: int
    members: int

    def __str__(self):
        return f"{self.users:,} × {self.groups:,} × {self.members:,}"

    @property
    def plain_groups(self):
        return self.groups - TEAMS if self.members >= MEMBERS_OF_TEAM else self.groups

    @property
    def all_groups(self):
        return self.plain_groups + TEAMS


# By the name that --sizes takes.
SIZES = {
    "2k": ScaleShape(2_000, 300, 30),
    "10k": ScaleShape(10_000, 10_000, 500),
    "200k": ScaleShape(200_000, 20_000, 50),
    "1m": ScaleShape(1_000_000, 100_000, 20),
}


def sizes_named(text):
    """The sizes of a list such as `2k,10k`, in that order."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SIZES]
    if unknown or not names:
        raise ValueError(f"sizes: {', '.join(unknown) or 'empty list'}. Use some of: {', '.join(SIZES)}")
    return names


def ldif(shape, seed, schema):
    """Yields the entries one by one: a million of them need not fit into memory."""
    yield (
        f"dn: {d.BASE}\nobjectClass: domain\ndc: example\n\n"
        f"dn: ou=people,{d.BASE}\nobjectClass: organizationalUnit\nou: people\n\n"
        f"dn: ou=groups,{d.BASE}\nobjectClass: organizationalUnit\nou: groups\n\n"
        f"dn: {d.READER}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n"
        f"cn: reader\nuserPassword: {d.READER_PASSWORD}\n\n"
    )
    for number in range(shape.users):
        attributes = user_attributes("probe" if number == 0 else f"u{number - 1}", number)
        yield f"dn: {d.user_dn(attributes['uid'])}\n" + "".join(
            f"{name}: {value}\n" for name, values in attributes.items() for value in _list(values)
        ) + "\n"
    kind = "groupOfMembers\nobjectClass: posixGroup" if schema == d.RFC2307BIS else "posixGroup"
    for name, gid, members in groups(shape, seed):
        yield f"dn: {d.group_dn(name)}\nobjectClass: {kind}\ncn: {name}\ngidNumber: {gid}\n" + "".join(
            d.member_line(schema, member) for member in members
        ) + "\n"


def groups(shape, seed):
    """Name, gid and members of each group; `probe` is in none of them."""
    chance = random.Random(seed)
    others = range(shape.users - 1)
    for number in range(shape.all_groups):
        team = number < TEAMS
        name = f"team{number}" if team else f"g{number - TEAMS}"
        count = MEMBERS_OF_TEAM if team else shape.members
        yield name, d.FIRST_GID + number, [f"u{i}" for i in chance.sample(others, count)]


def user_attributes(name, number):
    """A user with the primary group `team0`, which exists in every size."""
    return {
        "objectClass": ["account", "posixAccount"], "uid": name, "cn": name, "uidNumber": str(d.FIRST_UID + number),
        "gidNumber": str(d.FIRST_GID), "homeDirectory": f"/home/{name}", "loginShell": "/bin/sh", "gecos": f"{name} 0",
    }  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One change: the key that the watching process (change_visibility.c) watches, its value before and after, and the
    LDAP request."""

    watch: str
    before: int
    after: int
    request: bytes


class Workload:
    """Changes of one directory, each of which leads on from those before."""

    def __init__(self, shape, schema):
        self.shape, self.schema = shape, schema
        self.gecos = self.memberships = self.users = 0
        self.added = []

    def next(self, kind):
        """None when there is no user left to remove."""
        return {
            "gecos": self._gecos,
            "membership": self._membership,
            "user added": self._user_added,
            "user removed": self._user_removed,
        }[kind]()

    def _gecos(self):
        self.gecos += 1
        request = modify_request(d.user_dn("probe"), REPLACE, "gecos", f"probe {self.gecos}")
        return Step("user probe", self.gecos - 1, self.gecos, request)

    def _membership(self):
        """`probe` joins a team and leaves it again, team by team."""
        turn, leaves = divmod(self.memberships, 2)
        self.memberships += 1
        team = f"team{turn % TEAMS}"
        attribute, value = d.member(self.schema, "probe")
        request = modify_request(d.group_dn(team), DELETE if leaves else ADD, attribute, value)
        return Step(f"{'lacks' if leaves else 'has'} {team} probe", 0, 1, request)

    def _user_added(self):
        name = f"new{self.users}"
        request = add_request(d.user_dn(name), user_attributes(name, self.shape.users + self.users))
        self.users += 1
        self.added.append(name)
        return Step(f"user {name}", -1, 0, request)

    def _user_removed(self):
        if not self.added:
            return None
        name = self.added.pop(0)
        return Step(f"gone {name}", 0, 1, delete_request(d.user_dn(name)))


def _list(values):
    return values if isinstance(values, list) else [values]
