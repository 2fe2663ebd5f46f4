# SPDX-License-Identifier: MIT OR Apache-2.0
"""Directories: invented users and groups as LDIF, and the right answers about some of them.

`big` is in many groups of many members, `lite` in a few small ones. `probe` is the user, and the group, that change
while a process watches. All other users are u0, u1, …
"""

import random
from dataclasses import dataclass

from .corpus import User, short
from .ldap import bind_request, message

BASE = "dc=example,dc=com"
READER, READER_PASSWORD = f"cn=reader,{BASE}", "reads everything"
FIRST_UID, FIRST_GID = 100_000, 1_000_000
GROUPS_OF_LITE, MEMBERS_OF_LITE = 5, 10
NAMED = ("big", "lite", "probe")
USER_ATTRIBUTES = ("uid", "uidNumber", "gidNumber", "gecos", "homeDirectory", "loginShell")
RFC2307, RFC2307BIS = "rfc2307", "rfc2307bis"


@dataclass(frozen=True)
class DirectoryShape:
    """How much of everything; `users` and `groups` count the named ones, too."""

    users: int
    groups: int
    members: int
    groups_of_big: int

    def __str__(self):
        return f"{self.users:,} users, {self.groups:,} groups × {self.members}"

    @property
    def key(self):
        return f"{short(self.users)}-{short(self.groups)}-{self.members}".replace(" ", "")


class Directory:
    """The same seed makes the same directory in either schema."""

    def __init__(self, shape, seed):
        self.shape, self.seed = shape, seed
        self.others = [f"u{i}" for i in range(shape.users - len(NAMED))]
        uids = {name: FIRST_UID + i for i, name in enumerate([*NAMED, *self.others])}
        # All users have a primary group that exists and that `big` is not in.
        self.primary = FIRST_GID + shape.groups - 1
        self.uids = uids

    def groups(self):
        """Name, gid and members of each group."""
        chance = random.Random(self.seed)
        shape = self.shape
        small = range(shape.groups_of_big, shape.groups_of_big + GROUPS_OF_LITE)
        for i in range(shape.groups):
            if i == shape.groups - 1:
                yield "probe", self.primary, [f"u{k}" for k in range(shape.members)]
            elif i in small:
                yield f"g{i}", FIRST_GID + i, ["lite", *chance.sample(self.others, MEMBERS_OF_LITE - 1)]
            elif i < shape.groups_of_big:
                yield f"g{i}", FIRST_GID + i, ["big", *chance.sample(self.others, shape.members - 1)]
            else:
                yield f"g{i}", FIRST_GID + i, chance.sample(self.others, shape.members)

    def user(self, name):
        """The expected output of `id` about `big` or `lite`."""
        first, count, members = {
            "big": (0, self.shape.groups_of_big, self.shape.members),
            "lite": (self.shape.groups_of_big, GROUPS_OF_LITE, MEMBERS_OF_LITE),
        }[name]
        groups = [("probe", str(self.primary))]
        groups += [(f"g{i}", str(FIRST_GID + i)) for i in range(first, first + count)]
        return User(name, str(self.uids[name]), str(self.primary), tuple(groups), count * members)

    def passwd_line(self, name):
        return f"{name}:x:{self.uids[name]}:{self.primary}:{name} 0:/home/{name}:/bin/sh"

    def write_ldif(self, path, schema):
        with path.open("w") as output:
            output.write(
                f"dn: {BASE}\nobjectClass: domain\ndc: example\n\n"
                f"dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n"
                f"dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups\n\n"
                f"dn: {READER}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n"
                f"cn: reader\nuserPassword: {READER_PASSWORD}\n\n"
            )
            for name, uid in self.uids.items():
                output.write(
                    f"dn: {user_dn(name)}\nobjectClass: account\nobjectClass: posixAccount\nuid: {name}\n"
                    f"cn: {name}\nuidNumber: {uid}\ngidNumber: {self.primary}\nhomeDirectory: /home/{name}\n"
                    f"loginShell: /bin/sh\ngecos: {name} 0\n\n"
                )
            kind = "groupOfMembers\nobjectClass: posixGroup" if schema == RFC2307BIS else "posixGroup"
            for name, gid, members in self.groups():
                output.write(f"dn: {group_dn(name)}\nobjectClass: {kind}\ncn: {name}\ngidNumber: {gid}\n")
                output.writelines(member_line(schema, member) for member in members)
                output.write("\n")


def as_reader():
    """The bytes of a bind as rosterd and its peers bind, in hexadecimal."""
    return message(1, bind_request(READER, READER_PASSWORD)).hex()


def user_dn(name):
    return f"uid={name},ou=people,{BASE}"


def group_dn(name):
    return f"cn={name},ou=groups,{BASE}"


def member(schema, name):
    """Attribute and value that make a user a member."""
    return ("member", user_dn(name)) if schema == RFC2307BIS else ("memberUid", name)


def member_line(schema, name):
    return "%s: %s\n" % member(schema, name)
