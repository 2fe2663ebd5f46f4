#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Computes the users and groups that a host must serve for an Active Directory domain, from the output of ldapsearch.
Shares no code with the daemon: it has its own reader of SIDs, hash and closure of groups.

usage: expected_ad.py DOMAIN < LDIF

LDIF has objectSid, sAMAccountName, primaryGroupID, sAMAccountType, groupType, member, displayName, name, gecos,
unixHomeDirectory and loginShell of all entries, and the entry of the domain. Prints JSON: {"users": {NAME: {"line": PASSWD
LINE, "gids": [GID, …]}}, "groups": {NAME: {"gid": GID, "members": [NAME, …]}}}.
"""

import base64
import json
import struct
import sys

USER, GLOBAL, LOCAL = "805306368", "268435456", "536870912"
MASK = 0xFFFFFFFF


def entries(text):
    for block in text.replace("\n ", "").split("\n\n"):
        dn, values = None, {}
        for line in block.split("\n"):
            if not line or line.startswith("#") or ":" not in line:
                continue
            name, value = line.split(":", 1)
            value = base64.b64decode(value[1:]) if value.startswith(":") else value.lstrip(" ").encode()
            if name == "dn":
                dn = value.decode()
            else:
                values.setdefault(name.lower(), []).append(value)
        if dn:
            yield dn.lower(), values


def sid(value):
    count = value[1]
    numbers = struct.unpack(f"<{count}I", value[8 : 8 + 4 * count])
    return "-".join(map(str, ("S", value[0], int.from_bytes(value[2:8], "big"), *numbers)))


def murmur(text, seed):
    """MurmurHash3 x86_32."""

    def mixed(block):
        block = block * 0xCC9E2D51 & MASK
        return (block << 15 | block >> 17) * 0x1B873593 & MASK

    hashed = seed
    whole = len(text) // 4 * 4
    for place in range(0, whole, 4):
        hashed ^= mixed(int.from_bytes(text[place : place + 4], "little"))
        hashed = ((hashed << 13 | hashed >> 19) & MASK) * 5 + 0xE6546B64 & MASK
    hashed ^= mixed(int.from_bytes(text[whole:], "little")) ^ len(text)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & MASK
    return hashed ^ hashed >> 16


def id_of(text):
    domain, rid = text.rsplit("-", 1)
    return 200_000 + murmur(domain.encode(), 0xDEADBEEF) % 10_000 * 200_000 + int(rid)


def main():
    host_domain = sys.argv[1]
    found = list(entries(sys.stdin.read()))
    kind = {dn: values.get("samaccounttype", [b""])[0].decode() for dn, values in found}
    one = {dn: {name: values[name][0] for name in values} for dn, values in found}
    users = [dn for dn, values in found if kind[dn] == USER]
    builtin = {dn for dn, values in found if values.get("grouptype") == [b"-2147483643"]}
    groups = [dn for dn, values in found if kind[dn] in (GLOBAL, LOCAL) and dn not in builtin]
    sids = {dn: sid(one[dn]["objectsid"]) for dn in users + groups}
    by_sid = {text: dn for dn, text in sids.items()}
    domain = sids[users[0]].rsplit("-", 1)[0]
    primary = {dn: f"{domain}-{one[dn]['primarygroupid'].decode()}" for dn in users}
    listed = {dn: [] for dn in groups}
    for dn, values in found:
        if dn in listed:
            listed[dn] = [member.decode().lower() for member in values.get("member", [])]

    def members(group):
        """Users in a group, at any depth. Its own primary members are in no list, as in /etc/group."""
        inside, seen, queue = set(), {group}, [group]
        while queue:
            inner = queue.pop()
            if inner != group:
                inside |= {user for user in users if primary[user] == sids[inner]}
            for member in listed[inner]:
                if member in primary:
                    inside.add(member)
                elif member in listed and member not in seen:
                    seen.add(member)
                    queue.append(member)
        return inside

    inside = {dn: members(dn) for dn in groups}
    name = {dn: one[dn]["samaccountname"].decode().lower() for dn in users + groups}
    shown = {"users": {}, "groups": {}}
    for dn in users:
        values = one[dn]
        gecos = values.get("gecos") or values.get("displayname") or values["name"]
        home = values.get("unixhomedirectory", f"/home/{host_domain}/{name[dn]}".encode())
        shell = values.get("loginshell", b"/bin/bash")
        gid = id_of(primary[dn])
        line = f"{name[dn]}:*:{id_of(sids[dn])}:{gid}:{gecos.decode()}:{home.decode()}:{shell.decode()}"
        gids = {gid} | {id_of(sids[group]) for group in groups if dn in inside[group]}
        shown["users"][name[dn]] = {"line": line, "gids": sorted(gids)}
        assert primary[dn] in by_sid, primary[dn]
    for dn in groups:
        people = sorted(name[user] for user in inside[dn])
        shown["groups"][name[dn]] = {"gid": id_of(sids[dn]), "members": people}
    json.dump(shown, sys.stdout)


main()
