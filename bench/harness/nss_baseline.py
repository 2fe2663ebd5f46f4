# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes the file of ready answers that nss_baseline.c maps. Layout: the structs at the top of nss_baseline.c."""

import array
import struct

HEADER = struct.Struct("<13I")
USER_FIELDS, GROUP_FIELDS = 9, 3


def write(corpus, path):
    """Answers of every user and group of the corpus; groups without their members."""
    users = corpus.users()
    gids_by_user = {fields[0]: [] for fields in users}
    groups = []
    with corpus.group.open("rb") as lines:
        for line in lines:
            name, passwd, gid, members = line.rstrip(b"\n").split(b":")
            groups.append((name, passwd, int(gid)))
            for member in members.split(b","):
                if member in gids_by_user:
                    gids_by_user[member].append(int(gid))

    image = Image(HEADER.size)
    user_words, group_words = array.array("I"), array.array("I")
    for name, passwd, uid, gid, gecos, directory, shell in users:
        gids = array.array("I", (g for g in gids_by_user[name] if g != int(gid)))
        strings = [image.text(value) for value in (name, passwd, gecos, directory, shell)]
        user_words.extend([*strings, int(uid), int(gid), image.words(gids), len(gids)])
    for name, passwd, gid in groups:
        group_words.extend([image.text(name), image.text(passwd), gid])

    slots = 1 << (2 * max(len(users), len(groups))).bit_length()
    uids, gids = [int(fields[2]) for fields in users], [gid for _, _, gid in groups]
    tables = [
        image.words(user_words),
        image.words(group_words),
        image.words(by_name([fields[0] for fields in users], slots)),
        image.words(by_id(uids)),
        image.words(by_name([name for name, _, _ in groups], slots)),
        image.words(by_id(gids)),
    ]
    image.data[: HEADER.size] = HEADER.pack(
        len(users), len(groups), min(uids), span(uids), min(gids), span(gids), slots, *tables
    )
    path.write_bytes(image.data)


class Image:
    """The file while it grows; every string is stored once."""

    def __init__(self, header_bytes):
        self.data = bytearray(header_bytes)
        self.places = {}

    def text(self, value):
        if value not in self.places:
            self.places[value] = len(self.data)
            self.data += value + b"\0"
        return self.places[value]

    def words(self, values):
        self.data += bytes(-len(self.data) % 64)
        place = len(self.data)
        self.data += values.tobytes()
        return place


def by_name(names, slots):
    """Open addressing: number + 1 of the record, 0 where nothing lies."""
    table = array.array("I", bytes(4 * slots))
    for number, name in enumerate(names, 1):
        slot = fnv1a(name) & (slots - 1)
        while table[slot]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = number
    return table


def by_id(ids):
    """Plain array from the smallest id to the largest: number + 1 of the record."""
    table = array.array("I", bytes(4 * span(ids)))
    first = min(ids)
    for number, each in enumerate(ids, 1):
        table[each - first] = table[each - first] or number
    return table


def span(ids):
    return max(ids) - min(ids) + 1


def fnv1a(name):
    value = 2166136261
    for byte in name:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value
