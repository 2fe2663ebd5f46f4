#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a snapshot by docs/reference/snapshot-format.md alone, and shares no code with the program.

usage: read_snapshot.py FILE passwd|group|initgroups|shadow [KEY...]

Prints the output of `roster get`. Without keys it lists; with keys it goes through the indices. Every checksum on the
way is checked. Its success proves that the page is complete.
"""

import struct
import sys

M, M128 = (1 << 64) - 1, (1 << 128) - 1
K = [int(k, 16) for k in """
243F6A8885A308D3 13198A2E03707344 A4093822299F31D0 082EFA98EC4E6C89
452821E638D01377 BE5466CF34E90C6C C0AC29B7C97C50DD 3F84D5B5B5470917
9216D5D98979FB1B D1310BA698DFB5AC""".split()]
RECORD_BYTES = {1: 128, 2: 64, 3: 16, 4: 24, 7: 4, 8: 1, 14: 128,
                9: 64, 10: 64, 11: 64, 12: 64, 13: 64, 15: 64, 16: 80}


class Damage(Exception): ...


def need(truth, what):
    if not truth:
        raise Damage(what)


def fold(a, b):
    product = a * b
    return (product & M) ^ (product >> 64)


def start_and_factor(n):
    return fold(n ^ K[0], K[1]), fold(n ^ K[2], K[3])


def pieces(text):
    """The halves of each 16 bytes, the last ones filled up with zeros."""
    return struct.iter_unpack("<QQ", text + bytes(-len(text) % 16))


def hash_bytes(text, seed):
    h, factor = start_and_factor(seed)
    for low, high in pieces(text):
        h = fold(h ^ low, high ^ factor)
    return fold(h ^ len(text), K[4])


def hash_id(key, seed):
    start, factor = start_and_factor(seed)
    return fold(key ^ start, factor)


def sum_of_names(slots):
    s = t = 0
    for slot in slots:
        s = s + int.from_bytes(slot, "little") & M128
        t = t + s & M128
    return fold(s & M ^ K[5], s >> 64 ^ K[6]) + fold(t & M ^ K[7], t >> 64 ^ K[8]) & M


def check(record, identity, section, position, name=b""):
    k, s = K[5], 0
    for low, high in [(section << 32 | position, identity), *pieces(bytes(4) + record[4:]), *pieces(name)]:
        s = s + fold(low ^ k, high ^ K[6]) & M
        k = k + K[7] & M
    return (s ^ s >> 32) & 0xFFFFFFFF


class Snapshot:
    def __init__(self, data, content=True):
        self.data = data
        need(len(data) >= 512, "too short")
        magic, version, self.kind, required, length, self.generation, self.seed, content_hash, self.min_id, \
            used, self.identity = struct.unpack_from("<8sIHHQQQQIIQ", data)
        need((magic, version) == (b"ROSTER\r\n", 3), "magic or version")
        need(required == 0, "required features")
        need(length == len(data), "length")
        need(struct.unpack_from("<Q", data, 504)[0] == hash_bytes(data[:504], 0), "header")
        need(not content or content_hash == hash_bytes(data[512:], 0), "content")
        need(used <= 15, "section count")
        self.responder = data[424:504].rstrip(b"\0")
        need(len(self.responder) < 80 and b"\0" not in self.responder, "end of the responder's path")
        need(self.responder[:1] in (b"", b"/"), "responder's path")
        self.sections = {}
        for i in range(used):
            number, size, offset, count = struct.unpack_from("<IIQQ", data, 64 + 24 * i)
            need(number not in self.sections, "section number")
            need(size == RECORD_BYTES.get(number, size) and (number not in (5, 6) or size in (2, 4)),
                 "record size")
            need(offset + size * count <= len(data), "section bounds")
            self.sections[number] = (offset, size, count)
        need(self.count(3) == self.count(4), "names and memberships")

    def count(self, section):
        return self.sections.get(section, (0, 0, 0))[2]

    def record(self, section, position):
        offset, size, count = self.sections.get(section, (0, 0, 0))
        need(position < count, f"section {section} has no record {position}")
        start = offset + size * position
        return self.data[start:start + size]

    def checked(self, section, position):
        record = self.record(section, position)
        need(struct.unpack_from("<I", record)[0] == check(record, self.identity, section, position),
             f"check of record {position} in section {section}")
        return record

    def long_text(self, offset, length):
        start, _, count = self.sections.get(8, (0, 0, 0))
        need(offset + length <= count, "long text")
        return self.data[start + offset:start + offset + length]

    def strings(self, flags, lens, text):
        if flags & 1:
            need(not any(lens), "lengths of a long text")
            offset, text_hash = struct.unpack_from("<QQ", text)
            lens = struct.unpack_from(f"<{len(lens)}I", text, 16)
            text = self.long_text(offset, sum(lens) + len(lens))
            need(hash_bytes(text, 0) == text_hash, "long text hash")
        strings, start = [], 0
        for n, length in enumerate(lens):
            need(text[start + length:start + length + 1] == b"\0", "NUL")
            null = n > 0 and flags >> n & 1
            strings.append(None if null else text[start:start + length])
            start += length + 1
        return strings

    def user(self, position):
        record = self.checked(1, position)
        uid, gid, flags, *lens = struct.unpack_from("<IIB5B", record, 4)
        need(uid >= self.min_id, "uid")
        name, *rest = self.strings(flags, lens, record[20:])
        return name, rest, uid, gid

    def group(self, position):
        record = self.checked(2, position)
        gid, flags, *lens = struct.unpack_from("<IB2B", record, 4)
        count, first, member_sum, member_bytes = struct.unpack_from("<IQQI", record, 12)
        need(gid >= self.min_id, "gid")
        name, passwd = self.strings(flags, lens, record[36:])
        numbers = self.numbers(5, first, count)
        members = [self.name(number) for number in numbers]
        slots = (self.record(3, number) for number in numbers)
        need(sum_of_names(slots) == member_sum, "members")
        need(sum(len(member) + 1 for member in members) == member_bytes, "member bytes")
        return name, passwd, gid, members

    def numbers(self, section, first, count):
        offset, size, total = self.sections.get(section, (0, 4, 0))
        need(first + count <= total, "list")
        code = f"<{count}{'H' if size == 2 else 'I'}"
        return struct.unpack_from(code, self.data, offset + size * first)

    def name(self, position):
        slot = self.record(3, position)
        if slot[15] == 255:
            name = self.long_text(struct.unpack_from("<Q", slot)[0],
                                  int.from_bytes(slot[8:11], "little"))
            need(hash_bytes(name, 0) & 0xFFFFFFFF == struct.unpack_from("<I", slot, 11)[0], "name")
            return name
        need(slot[15] <= 15, "last byte of a name")
        return slot[:15 - slot[15]]

    def gids(self, position):
        record, name = self.record(4, position), self.record(3, position)
        stored, count, first, gid_sum = struct.unpack("<IIQQ", record)
        need(stored == check(record, self.identity, 4, position, name), "membership")
        gids = [struct.unpack("<I", self.record(7, line))[0]
                for line in self.numbers(6, first, count)]
        s = t = 0
        for gid in gids:
            s, t = s + gid & M, t + s + gid & M
        need(fold(s ^ K[9], t ^ K[4]) == gid_sum, "gids")
        return gids

    def shadow(self, position):
        record = self.checked(14, position)
        flags, *lens = struct.unpack_from("<B2B", record, 4)
        *days, flag = struct.unpack_from("<6iQ", record, 8)
        name, passwd = self.strings(flags, lens, record[40:])
        return name, passwd, days, flag

    def find(self, index, key_hash, is_it):
        """The first candidate of an index for which `is_it` returns a value."""
        buckets = self.count(index)
        place = (key_hash & 0xFFFFFFFF) * buckets >> 32
        for _ in range(min(16, buckets)):
            bucket = self.checked(index, place)
            fingerprints = struct.unpack_from("<10H", bucket, 4)
            for n, fingerprint in enumerate(fingerprints):
                if fingerprint == (key_hash >> 48 or 1):
                    found = is_it(struct.unpack_from("<I", bucket, 24 + 4 * n)[0])
                    if found is not None:
                        return found
            if fingerprints[9] == 0:
                return None
            place = (place + 1) % buckets
        need(buckets <= 16, "a run of full buckets")
        return None

    def entry(self, index, read, key, of):
        def is_it(position):
            found = read(position)
            return found if of(found) == key else None
        key_hash = hash_id(key, self.seed) if isinstance(key, int) else hash_bytes(key, self.seed)
        return self.find(index, key_hash, is_it)

    def supplementary(self, name):
        return self.find(13, hash_bytes(name, self.seed),
                         lambda n: self.gids(n) if self.name(n) == name else None)


def line(*fields):
    return b":".join(b"" if f is None else f if isinstance(f, bytes) else b"%d" % f for f in fields)


def ids(entry, *ids):
    """As getent writes them: not for NIS lines."""
    return [None] * len(ids) if entry[0][:1] in (b"+", b"-") else ids


def main(path, what, *keys):
    with open(path, "rb") as file:
        snapshot = Snapshot(file.read(), content=not keys)
    maps = {"passwd": (1, snapshot.user, 9, 10, 2), "group": (2, snapshot.group, 11, 12, 2),
            "shadow": (14, snapshot.shadow, 15, None, None)}
    show = {"passwd": lambda u: line(u[0], u[1][0], *ids(u, u[2], u[3]), *u[1][1:]),
            "group": lambda g: line(g[0], g[1], *ids(g, g[2]), b",".join(g[3])),
            "shadow": lambda s: line(s[0], s[1], *(None if d == -1 else d for d in s[2]),
                                     None if s[3] == M else s[3])}
    missing = False
    for key in [k.encode(errors="surrogateescape") for k in keys]:
        if what == "initgroups":
            gids = snapshot.supplementary(key)
            out = b"%-21s" % key + b"".join(b" %d" % gid for gid in gids or [] if gid != 0xFFFFFFFF)
        else:
            _, read, by_name, by_id, id_field = maps[what]
            found = snapshot.entry(by_id, read, int(key), lambda e: e[id_field]) \
                if by_id and key.isdigit() else snapshot.entry(by_name, read, key, lambda e: e[0])
            if found is None:
                missing = True
                continue
            out = show[what](found)
        sys.stdout.buffer.write(out + b"\n")
    if not keys:
        section, read = maps[what][:2]
        for position in range(snapshot.count(section)):
            sys.stdout.buffer.write(show[what](read(position)) + b"\n")
    return 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
