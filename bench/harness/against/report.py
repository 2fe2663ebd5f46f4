# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `bench/run --against`, for a terminal and as Markdown."""

from ..table import Table
from . import ratios
from .comparison import name_of


def tables(results):
    tries = results["tries"]
    made = [_lines(tries[0])] if len(tries) == 1 else [_tries(tries), _spread(tries)]
    return [*made, _load(results["load"])]


def _lines(one):
    rows = [
        [
            name_of(line), _time(line["old"]["median"]), _time(line["new"]["median"]), f"{line['ratio']['median']:.3f}",
            f"{line['ratio']['low']:.3f} – {line['ratio']['high']:.3f}", str(line["rounds"]), line["verdict"],
        ]
        for line in one["lines"]
    ]  # fmt: skip
    header = ["line", "old", "new", "new / old", "95 % interval", "rounds", "verdict"]
    return Table("Old and new in turns: medians", header, rows, [NOTE])


def _tries(tries):
    """One row a try."""
    rows = []
    for number, one in enumerate(tries, 1):
        verdicts = [line["verdict"] for line in one["lines"]]
        counts = [str(verdicts.count(verdict)) for verdict in (ratios.SLOWER, ratios.FASTER, ratios.UNCLEAR)]
        worst = max(one["lines"], key=lambda line: line["ratio"]["low"], default=None)
        named = f"{worst['ratio']['low']:.3f}, {name_of(worst)}" if worst else "–"
        load = " – ".join(f"{each:.1f}" for each in one["load_averages"])
        rows.append([str(number), str(len(verdicts)), *counts, named, load, f"{one['seconds']:.0f}"])
    header = ["try", "lines", "slower", "faster", "unclear", "largest lower bound", "load average", "seconds"]
    return Table("Tries: lines by verdict", header, rows, [NOTE])


def _spread(tries):
    """One row a line, over all tries."""
    by_name = {}
    for one in tries:
        for line in one["lines"]:
            by_name.setdefault(name_of(line), []).append(line)
    rows = []
    for name, lines in by_name.items():
        middles = [line["ratio"]["median"] for line in lines]
        widest = max(lines, key=lambda line: line["ratio"]["high"] - line["ratio"]["low"])["ratio"]
        verdicts = [line["verdict"] for line in lines]
        rows.append([
            name, _time(lines[0]["old"]["median"]), f"{min(middles):.3f} – {max(middles):.3f}",
            f"{widest['low']:.3f} – {widest['high']:.3f}", str(verdicts.count(ratios.SLOWER)),
        ])  # fmt: skip
    return Table("Lines over all tries", ["line", "old", "new / old", "widest interval", "slower"], rows, [])


def _load(by_part):
    rows = [[part, *(load.get(key, "") for key in ("corpora", "clients", "rate"))] for part, load in by_part.items()]
    return Table("Load shape", ["part", "corpora", "clients", "rate"], rows, [])


NOTE = (
    f"slower: the whole interval is above {ratios.SLOWER_ABOVE}; faster: below 1/{ratios.SLOWER_ABOVE}; "
    "same: within both; unclear: over a limit."
)


def heading(results):
    o, builds, limits = results["origin"], results["builds"], results["limits"]
    compared = "; ".join(f"{side}: commit {build['commit']} in {build['folder']}" for side, build in builds.items())
    return (
        f"{compared}\n{o['cpu']}, {o['processors']} processors, Linux {o['kernel']}, {o['distribution']}, {o['glibc']}; "
        f"{o['time']}; load average {o['load_average_before']:.1f} before, {o['load_average_after']:.1f} after; "
        f"{limits['blocks']} blocks a line\n"
    )


def _time(ns):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}" if ns < 1000 * unit else f"{ns / unit:.0f} {name}"
    return f"{ns:.3g} ns"
