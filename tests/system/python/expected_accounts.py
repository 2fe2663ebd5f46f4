#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the entries that a host must serve with the answers of glibc here. The expected entries come from the output
of ldapsearch. Shares no code with the daemon.

usage: expected_accounts.py CASE.json [-v]

CASE.json: {"passwd": FILE, "group": FILE, "min_id": N, "max_id": N,
            "domains": [{"name": NAME, "schema": "rfc2307"|"rfc2307bis", "ldif": FILE},
                        {"name": NAME, "passwd": FILE, "group": FILE}, …]}

Run it with `roster` alone in nsswitch.conf. Prints the differences and exits 1 if there are any.
"""

import base64
import grp
import json
import os
import pwd
import re
import sys

RESERVED = {0, 65534, 65535, 2**32 - 1}
SHOWN_MAX = 20


def text_of(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return file.read()


def ldif_entries(path):
    """(dn, {attribute: [values]}) of each entry."""
    for block in text_of(path).replace("\n ", "").split("\n\n"):
        dn, values = None, {}
        for line in block.split("\n"):
            if not line or line.startswith("#"):
                continue
            name, value = line.split(":", 1)
            if value.startswith(":"):
                value = base64.b64decode(value[1:]).decode("utf-8", "surrogateescape")
            else:
                value = value.lstrip(" ")
            if dn is None:
                dn = value
            else:
                values.setdefault(name.lower(), []).append(value)
        if dn:
            yield dn, values


def canonical(dn):
    """Spellings of a DN that mean the same; the DNs here have no escapes."""
    parts = (part.split("=", 1) for part in dn.split(","))
    return ",".join(f"{name.strip()}={value.strip()}".lower() for name, value in parts)


def of_rdn(dn, attribute, values):
    """The one value, or of several the one in the RDN."""
    if len(values) == 1:
        return values[0]
    name, value = dn.split(",", 1)[0].split("=", 1)
    return value if name.strip().lower() == attribute else None


def one(values, attribute, default=None):
    found = values.get(attribute, [])
    return found[0] if found else default


def ldap_domain(ldif):
    """Users and groups, and each group's members: keys of either."""
    users, groups, of_name = {}, {}, {}
    for dn, values in ldif_entries(ldif):
        classes = {value.lower() for value in values.get("objectclass", [])}
        key = canonical(dn)
        if "posixaccount" in classes:
            name = of_rdn(dn, "uid", values["uid"])
            of_name.setdefault(name, []).append(key)
            users[key] = (
                name, int(one(values, "uidnumber")), int(one(values, "gidnumber")),
                one(values, "gecos", ""), one(values, "homedirectory"),
                one(values, "loginshell", ""))
        if "posixgroup" in classes:
            members = {canonical(member) for member in values.get("member", [])}
            for member in values.get("uniquemember", []):
                members.add(canonical(re.sub("#'[01]*'B$", "", member)))
            name = of_rdn(dn, "cn", values["cn"])
            groups[key] = (name, int(one(values, "gidnumber")), members, values.get("memberuid", []))
    for key, (name, gid, members, names) in groups.items():
        members.update(member for one_name in names for member in of_name.get(one_name, []))
        groups[key] = (name, gid, members)
    return users, groups


def files_domain(passwd, group):
    users, groups = {}, {}
    for line in text_of(passwd).splitlines():
        name, _, uid, gid, gecos, home, shell = line.split(":")
        users[name] = (name, int(uid), int(gid), gecos, home, shell)
    for line in text_of(group).splitlines():
        name, _, gid, members = line.split(":")
        groups[name] = (name, int(gid), {member for member in members.split(",") if member})
    return users, groups


def all_members(key, users, groups, nested, seen):
    """The users of a group and of the groups in it, each group once."""
    seen.add(key)
    for member in groups[key][2]:
        if member in users:
            yield member
        elif nested and member in groups and member not in seen:
            yield from all_members(member, users, groups, nested, seen)


def well_named(name):
    return bool(name) and len(name.encode("utf-8", "surrogateescape")) <= 255 \
        and not re.search(r"[\x00-\x1f\x7f:,/\udc80-\udcff]", name) and not name.isdecimal() \
        and name not in (".", "..") and name[0] not in "-+~ " and name[-1] != " "


def well_formed(user):
    gecos, home, shell = user[3:]
    return not any(re.search(r"[:\x00-\x1f\x7f\udc80-\udcff]", text) for text in (gecos, home, shell)) \
        and home.startswith("/") and (not shell or shell.startswith("/"))


def expected(case):
    """Returns the expected entries: {name: user}, {name: (gid, members)}."""
    local_users = [line.split(":") for line in text_of(case["passwd"]).splitlines()]
    local_groups = [line.split(":") for line in text_of(case["group"]).splitlines()]
    local_names = {line[0] for line in local_users}
    local_uids = {int(line[2]) for line in local_users}
    local_group_names = {line[0] for line in local_groups}
    local_gids = {int(line[2]) for line in local_groups}
    low, high = case.get("min_id", 1000), case.get("max_id", 2**32 - 2)

    def admissible(number):
        return low <= number <= high and number not in RESERVED

    domains = []
    for domain in case["domains"]:
        if "ldif" in domain:
            users, groups = ldap_domain(domain["ldif"])
        else:
            users, groups = files_domain(domain["passwd"], domain["group"])
        domains.append((users, groups, "ldif" in domain))

    # An id belongs to the first domain that has it, and there to the first entry. So does a name. The first entry of
    # another domain has the name with its domain. A primary gid makes a
    # member. It must not be a group of a higher-priority domain, and no group may have the primary gid of a user there.
    group_names, user_names, gids, uids = {}, {}, {}, {}
    served_users, named, admitted, primary = {}, {}, [{} for _ in domains], set()

    def served_name(owners, me, name):
        """The name of an entry, or None if an earlier entry of its domain has the name."""
        if owners.setdefault((me[0], name), me) != me:
            return None
        first = owners.setdefault(name, me)
        return name if first == me else f"{name}@{case['domains'][me[0]]['name']}"

    for position, (users, groups, _) in enumerate(domains):
        earlier = primary.copy()
        for key, (name, gid, _) in groups.items():
            if well_named(name) and admissible(gid) and name not in local_group_names \
                    and gid not in local_gids:
                me = position, key
                name = served_name(group_names, me, name)
                if gids.setdefault(gid, me) == me and name and gid not in earlier:
                    named[name] = me
        for key, user in users.items():
            name, uid, gid = user[:3]
            if well_named(name) and well_formed(user) and admissible(uid) and admissible(gid) \
                    and gid not in local_gids and name not in local_names and uid not in local_uids:
                me = position, key
                primary.add(gid)
                name = served_name(user_names, me, name)
                if uids.setdefault(uid, me) == me and name and gids.get(gid, me)[0] == position:
                    admitted[position][key] = name
                    served_users[name] = (name, *user[1:])
    served_groups = {}
    for name, (position, key) in named.items():
        users, groups, nested = domains[position]
        names = admitted[position]
        members = all_members(key, users, groups, nested, set())
        served_groups[name] = groups[key][1], {names[m] for m in members if m in names}
    return served_users, served_groups


def compare(case):
    """Yields differences, as text."""
    users, groups = expected(case)

    def differ(what, wanted, found):
        if wanted != found:
            yield f"{what}: expected {wanted}, found {found}"

    def as_user(entry):
        return entry[0], *entry[2:]

    def as_group(entry):
        if len(entry.gr_mem) != len(set(entry.gr_mem)):
            return f"{entry.gr_name} names a member twice"
        return entry.gr_gid, set(entry.gr_mem)

    listed = pwd.getpwall()
    yield from differ("number of users", len(users), len(listed))
    for entry in listed:
        yield from differ(f"listed user {entry.pw_name}", users.get(entry.pw_name), as_user(entry))
    listed = grp.getgrall()
    yield from differ("number of groups", len(groups), len(listed))
    for entry in listed:
        yield from differ(f"listed group {entry.gr_name}", groups.get(entry.gr_name), as_group(entry))

    def look(function, key, form):
        try:
            return form(function(key))
        except KeyError:
            return None

    of_user = {}
    for name, (gid, members) in groups.items():
        wanted = gid, members
        yield from differ(f"group {name}", wanted, look(grp.getgrnam, name, as_group))
        yield from differ(f"gid {gid}", wanted, look(grp.getgrgid, gid, as_group))
        for member in members:
            of_user.setdefault(member, set()).add(gid)
    for name, user in users.items():
        yield from differ(f"user {name}", user, look(pwd.getpwnam, name, as_user))
        yield from differ(f"uid {user[1]}", user, look(pwd.getpwuid, user[1], as_user))
        groups_of = os.getgrouplist(name, user[2])
        yield from differ(f"groups of {name}", of_user.get(name, set()) | {user[2]}, set(groups_of))
        yield from differ(f"groups of {name} told twice", len(set(groups_of)), len(groups_of))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    if sys.argv[2:] == ["-v"]:
        users, groups = expected(case)
        print(f"{len(users)} users, {len(groups)} groups")
    differences = 0
    for difference in compare(case):
        differences += 1
        if differences <= SHOWN_MAX:
            print(difference.encode("utf-8", "backslashreplace").decode())
    if differences:
        sys.exit(f"{differences} differences")


main()
