# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `roster nscd` and its peers."""

from .table import Table

FLOOR = "floor (no members)"
SERIES = {
    "getpwnam": "getpwnam",
    "getpwuid": "getpwuid",
    "getpwnam.unknown": "getpwnam, unknown",
    "getgrgid": "getgrgid, any",
    "getgrgid.500": "getgrgid, ~500 members",
    "initgroups": "groups of a user",
}


def tables(part):
    made = [_programs(part["programs"]), _lookups(part["lookups"])]
    if "lookups of many" in part:
        made.append(_lookups(part["lookups of many"]))
    made.append(_single(part["single"]))
    made.append(_made(part))
    return made


def _programs(part):
    rows = []
    floor = part["id"].get(FLOOR)
    for test in ("id", "first id", "ls -l"):
        label = test
        for name, each in part.get(test, {}).items():
            to_floor = f"{each['median'] / floor['median']:.2f}" if floor and test != "ls -l" else ""
            rows.append([label, name, _ms(each["median"]), to_floor, f"{_ms(each['p25'])} – {_ms(each['p75'])}", each["n"]])
            label = ""
    return Table(
        f"In place of nscd: programs, ms, medians: {part['corpus']}",
        ["program", "answered by", "wall", "to floor", "middle half", "runs"],
        [list(map(str, row)) for row in rows],
        [
            f"`id` of {part['user']}; the first one is that after the daemon's start, when its maps are there.",
            "ls -l lists 10,000 files of 10,000 owners, after it did once.",
        ],
    )


def _lookups(part):
    rows = []
    for series, label in SERIES.items():
        for name, each in part["glibc"].get(series, {}).items():
            rows.append([label, name, f"{each['median']:.0f}", f"{each['p25']:.0f} – {each['p75']:.0f}"])
            label = ""
    return Table(
        f"In place of nscd: look-ups through glibc, ns, medians: {part['corpus']}",
        ["look-up", "answered by", "ns", "middle half"],
        rows,
        [],
    )


def _single(part):
    rows = []
    for what, by_contender in part.items():
        for name, each in by_contender.items():
            rows.append([what, name, f"{each['median']:.0f}", f"{each['p25']:.0f} – {each['p75']:.0f}"])
            what = ""
    return Table(
        "In place of nscd: the same key again and again, ns, medians",
        ["key", "answered by", "ns", "middle half"],
        rows,
        ["nsswitch.conf has `files roster systemd` here."],
    )


def _made(part):
    rows = []
    for corpus, each in part["made"].items():
        size = " + ".join(f"{size / 1e6:.1f}" for size in each["bytes"].values())
        rows.append([f"both maps of {corpus} made, ms", _ms(each["ns"]["median"]), f"{size} MB"])
    for name, each in part["seen"].items():
        p99 = f"p99 {_ms(each['p99'])}, at the most {_ms(each['max'])}"
        if each["backwards"] or each["unseen"]:
            p99 += f"; {each['backwards']} answers older than one before, {each['unseen']} changes never seen"
        rows.append([f"a generation of 100 users seen, ms: {name}", _ms(each["p50"]), p99])
    return Table("In place of nscd: maps", ["", "median", ""], rows, [])


def _ms(ns):
    return f"{ns / 1e6:.2f}"
