# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables about commands as root: the rootwrap daemon, sudo, and their references."""

from .table import Table


def tables(results):
    made = []
    if "rootwrap" in results:
        made += [_calls(results["rootwrap"]), _threads(results["rootwrap"]), _large(results["rootwrap"])]
    if "exec" in results:
        made += [_programs(results["exec"]), _crowd(results["exec"]), _pipes(results["exec"]), _attack(results["exec"])]
    return made


def _programs(part):
    bare = part["programs"]["true"]["median"]
    rows = [
        [
            name,
            _ms(each["median"]),
            f"{each['median'] / bare:.2f}",
            f"{_ms(each['p25'])} – {_ms(each['p75'])}",
            str(each["n"]),
        ]
        for name, each in part["programs"].items()
    ]
    return Table("`true` as another process, ms, medians", ["by", "wall", "to true", "middle half", "runs"], rows, [])


def _crowd(part):
    rows = [
        [name, f"{each['per_s']['median']:.0f}", _ms(each["p50_ns"]["median"]), _ms(each["p99_ns"]["median"])]
        for name, each in part["crowd"].items()
    ]
    return Table("32 threads of one Python, `true` without a pause, ms", ["", "commands/s", "p50", "p99"], rows, [])


def _pipes(part):
    ways = {"descriptors": "from a program into a command", "through": "from the caller into a command and back"}
    rows = [
        [ways[way], *(f"{each[name]['median'] / 1e9:.3f}" for name in ("roster_exec.run", "subprocess.run")),
         f"{each['ratio']['median']:.2f}"]
        for way, each in part["large"].items()
    ]  # fmt: skip
    return Table("200 MB, s, medians", ["", "roster_exec.run", "subprocess.run", "ratio of pairs"], rows, [])


def _attack(part):
    rows = [
        [name, when, *(_ms(each[field]) for field in ("p50_ns", "p99_ns", "max_ns")), str(each["n"])]
        for when, users in part["attack"].items()
        for name, each in users.items()
    ]
    return Table(
        "`roster-exec true` while two users attack, ms",
        ["caller", "attack", "p50", "p99", "max", "calls"],
        rows,
        ["Each attacker holds 300 connections whose closing hangs (FUSE), and goes on connecting."],
    )


def _calls(part):
    floor = part["calls"]["subprocess.run"]["median"]
    rows = [
        [
            name,
            _ms(each["median"]),
            f"{each['median'] / floor:.2f}",
            f"{_ms(each['p25'])} – {_ms(each['p75'])}",
            str(each["n"]),
        ]
        for name, each in part["calls"].items()
    ]
    return Table(
        "One `true` as root, ms, medians",
        ["", "wall", "to subprocess.run", "middle half", "calls"],
        rows,
        [
            "roster and original: daemons, called by the client of oslo.rootwrap; the others are programs,",
            "started by subprocess.run of the same Python.",
        ],
    )


def _threads(part):
    rows = []
    for name, each in part["threads"].items():
        rows.append([
            name,
            f"{each['per_s']['median']:.0f}",
            *(_ms(each[field]["median"]) for field in ("p50_ns", "p99_ns", "max_ns", "inner_p50_ns", "inner_p99_ns")),
            f"{each['least_of_thread']['median']:.0f} – {each['most_of_thread']['median']:.0f}",
        ])  # fmt: skip
    return Table(
        "32 threads on one unchanged client, without a pause, ms",
        ["", "calls/s", "p50", "p99", "max", "with the lock: p50", "p99", "calls of a thread"],
        rows,
        [
            "The client runs one command at a time, under a lock that does not hand over in order: a thread",
            "that has just ended a call mostly gets it again. With the lock: from when a thread has it, which",
            "is all that a daemon can do something about. The last row's daemon answers without running anything.",
        ],
    )


def _large(part):
    rows = []
    for name, each in part["large"].items():
        rows.append([
            name,
            *(f"{each[field]['median'] / 1e9:.2f}" for field in ("encoding_ns", "stdin_ns")),
            f"{each['stdin_ratio']['median']:.2f}",
            f"{each['stdout_ns']['median'] / 1e9:.2f}",
            f"{each['peak_bytes'] / 1e6:.1f}",
        ])  # fmt: skip
    return Table(
        "200 MB through the unchanged client, s, medians",
        ["", "its own encoding", "into a command", "to the encoding", "out of one", "peak of the daemon, MB"],
        rows,
        [],
    )


def _ms(ns):
    ms = ns / 1e6
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.1f}" if ms >= 10 else f"{ms:.3f}"
