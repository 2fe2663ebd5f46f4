# SPDX-License-Identifier: MIT OR Apache-2.0
"""Turns the JSON of a run into tables: for a terminal, and as Markdown for the README."""

from . import commands_report as commands
from . import directories_report as directories
from . import lab_report as lab
from . import login_report
from . import nscd_report as maps
from . import scale_report as scale
from .table import Table

FLOOR = "floor (no members)"
SERIES = {
    "getpwnam": "getpwnam",
    "getpwuid": "getpwuid",
    "getpwnam.unknown": "getpwnam, unknown",
    "getgrgid.500": "getgrgid, ~500 members",
    "getgrgid": "getgrgid, any",
    "getgrnam": "getgrnam, any",
    "initgroups": "groups of a user",
}


def tables(results):
    """Every table for which there are results."""
    made = []
    for shape, part in results.get("programs", {}).items():
        made.append(_programs(shape, part))
    for part in results.get("lookups", {}).values():
        made += [_lookups(part, way) for way in ("straight", "glibc") if any(part[way].values())]
    if "compile" in results:
        made.append(_compile(results["compile"]))
    if "module" in results:
        made.append(_module(results["module"]))
    if "freshness" in results:
        made.append(_freshness(results["freshness"]))
    if "nscd" in results:
        made += maps.tables(results["nscd"])
    made += directories.tables(results)
    made += scale.tables(results)
    made += login_report.tables(results)
    made += commands.tables(results)
    made += lab.tables(results)
    made.append(_figures(results["figures"]))
    made.append(_load(results["load"]))
    return made


def _programs(shape, part):
    rows = []
    for test, by_contender in part["tests"].items():
        floor = by_contender.get(FLOOR)
        for name, s in by_contender.items():
            row = [test, name]
            for wall_or_cpu, of_floor in ((s, floor), (s["cpu_ns"], floor and floor["cpu_ns"])):
                spread = f"{_ms(wall_or_cpu['p25'])} – {_ms(wall_or_cpu['p75'])}" if s["n"] > 1 else ""
                ratio = f"{wall_or_cpu['median'] / of_floor['median']:.2f}" if floor else ""
                row += [_ms(wall_or_cpu["median"]), ratio, spread]
            rows.append([*row, str(s["n"])])
            test = ""
    return Table(
        f"Programs, ms, medians: {part['corpus']}",
        ["program", "answered by", "wall", "to floor", "middle half", "processor", "to floor", "middle half", "runs"],
        rows,
        [
            f"`id` of {part['user']}, in {part['groups']} groups of together {part['members']:,} members.",
            "nscd answers from its memory of what roster said; cold: right after its start.",
            *part["faults"],
        ],
    )


def _lookups(part, way):
    contenders = list(dict.fromkeys(name for series in part[way].values() for name in series))
    rows = []
    for series, label in SERIES.items():
        measured = part[way].get(series)
        if measured:
            rows.append([label, *(_ns_cell(measured.get(name)) for name in contenders)])
    where = "straight into the module (processor time)" if way == "straight" else "through glibc"
    notes = [f"{SERIES['getgrgid.500']}: {part['note']}."] if part["note"] else []
    return Table(
        f"Look-ups {where}, ns, medians (quartiles): {part['corpus']}",
        ["function", *contenders],
        rows,
        notes + [fault for fault in part["faults"] if fault.startswith(way)],
    )


def _compile(part):
    rows = [
        [
            corpus,
            f"{b['text_bytes'] / 1e6:.1f}",
            f"{b['snapshot_bytes'] / 1e6:.1f}",
            f"{b['wall_ns']['median'] / 1e9:.2f}",
            f"{b['cpu_us']['median'] / 1e6:.2f}",
            f"{b['peak_kb']['median'] / 1024:.0f}",
            str(b["wall_ns"]["n"]),
        ]
        for corpus, b in part.items()
    ]
    header = ["roster compile", "text MB", "snapshot MB", "wall s", "processor s", "peak MiB", "runs"]
    return Table("Building a snapshot, medians", header, rows, [])


def _module(part):
    rows = [
        [
            name,
            f"{m['bytes'] / 1e3:.1f}",
            str(m["relocations"]),
            str(m["relative_relocations"]),
            ", ".join(m["needed"]) or "nothing",
            f"{m['dlopen_ns']['median'] / 1e3:.1f}",
            f"{m['first_lookup_ns']['median'] / 1e3:.1f}",
        ]
        for name, m in part.items()
    ]
    header = ["module", "kB", "relocations", "relative", "needs", "dlopen µs", "first look-up µs"]
    return Table("The module", header, rows, ["There is no database: the first look-up is what it takes to find that out."])


def _freshness(part):
    def percentiles(field):
        ns = part.get(field)
        return " / ".join(f"{ns[each] / 1e6:.1f}" for each in ("p50", "p99", "max")) if ns else "never"

    rows = [
        ["first answer of a new generation, ms after the rename: p50 / p99 / max", percentiles("delay_ns")],
        ["last question that an older one answered, ms after it", percentiles("last_old_answer_ns")],
        ["generations timed", str(part["publications"])],
        ["generations never shown", str(part["never_shown"])],
        ["look-ups", f"{part['calls']:,}"],
        ["generations published meanwhile", f"{part['storm_publications']:,} in {part['storm_seconds']:.1f} s"],
        ["torn answers", str(part["torn"])],
        ["missing answers", str(part["missing"])],
        ["answers older than one seen before", str(part["backwards"])],
        ["most generations mapped at once", str(part["most_mappings"])],
    ]
    notes = [part["first_fault"]] if part["first_fault"] else []
    return Table("A running process and new generations", ["", ""], rows, notes)


def _figures(judged):
    rows = []
    for row in judged:
        if row["measured"] is not None:
            measured = _amount(row["measured"], row["unit"]) + row["among"]
            met = "met" if row["met"] else "NOT MET"
            bound = "≥" if row["at_least"] else "≤"
            rows.append([row["what"], f"{bound} {_amount(row['goal'], row['unit'])}", measured, met])
    left_out = len(judged) - len(rows)
    notes = [f"{left_out} more belong to parts or sizes that this run left out."] if left_out else []
    return Table("Figures to reach", ["", "goal", "measured", ""], rows, notes)


def _load(by_part):
    rows = []
    for part, shape in by_part.items():
        said = {key: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in shape.items()}
        rows.append([part, *(said.get(key, "") for key in ("corpora", "clients", "rate", "rounds"))])
    return Table("Load shape", ["part", "corpora", "clients", "rate", "rounds"], rows, [])


def _amount(value, unit):
    number = f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{number} {unit}".strip()


def _ms(ns):
    ms = ns / 1e6
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.1f}" if ms >= 10 else f"{ms:.3f}"


def _ns_cell(s):
    if s is None:
        return "–"
    return f"{_ns(s['median'])} ({_ns(s['p25'])}–{_ns(s['p75'])})" if s["n"] > 1 else _ns(s["median"])


def _ns(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def as_text(results):
    return "\n".join([_origin(results), *(text_of(table) for table in tables(results))])


def as_markdown(results):
    return "\n".join([*(markdown_of(table) for table in tables(results)), _origin(results)])


def _origin(results):
    o = results["origin"]
    peers = "".join(f", {name} {version}" if version else f", no {name}" for name, version in o["packages"].items())
    return (
        f"{o['cpu']}, {o['processors']} processors, Linux {o['kernel']}, {o['distribution']}, {o['glibc']}, "
        f"coreutils {o['coreutils']}{peers}; commit {o['commit']}; {o['time']}; load average "
        f"{o['load_average_before']:.1f} before, {o['load_average_after']:.1f} after; "
        f"{results['options']['repetitions']} rounds, contenders interleaved\n"
    )


def text_of(table):
    widths = [max(len(row[i]) for row in [table.header, *table.rows]) for i in range(len(table.header))]

    words = _left(table)

    def line(row):
        cells = (cell.ljust(widths[i]) if i in words else cell.rjust(widths[i]) for i, cell in enumerate(row))
        return "  " + "  ".join(cells).rstrip()

    head = [line(table.header), "  " + "  ".join("─" * width for width in widths)] if any(table.header) else []
    return "\n".join([table.title, *head, *map(line, table.rows), *(f"  {note}" for note in table.notes), ""])


def markdown_of(table):
    def line(cells):
        return "| " + " | ".join(cells) + " |"

    rule = line(["---" if i in _left(table) else "--:" for i in range(len(table.header))])
    notes = [f"\n{note}" for note in table.notes]
    return "\n".join([f"**{table.title}**\n", line(table.header), rule, *map(line, table.rows), *notes, ""])


def _left(table):
    """Columns of words; the others hold numbers."""
    return {i for i in range(len(table.header)) if i == 0 or all(_is_word(row[i]) for row in table.rows)}


def _is_word(cell):
    return not cell or not (cell[0].isdigit() or cell[0] in "≤–-")
