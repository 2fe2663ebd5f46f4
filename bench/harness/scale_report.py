# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of the part `scale`."""

from .table import Table

NONE = "–"


def tables(results):
    if "scale" not in results:
        return []
    part = results["scale"]
    return [_sizes(part), _changes(part), _roles(part)]


def _sizes(part):
    rows = []
    for size, each in part["sizes"].items():
        roster, nslcd = each.get("roster", {}), each.get("nslcd", {})
        mirror, peak = roster.get("mirror"), roster.get("peak") or {}
        rows.append([
            size,
            f"{mirror['wall_ns']['median'] / 1e9:.2f}" if mirror else _not_within(roster),
            f"{mirror['cpu_s']['median']:.2f}" if mirror else NONE,
            *(_mb(at(peak, moment, "pss")) for moment in ("mirror", "changes")),
            _mb(at(roster, "idle", "pss")),
            _mb(roster.get("snapshot_bytes")),
            f"{roster['idle']['cpu_s_per_s'] * 1000:.1f}" if "idle" in roster else NONE,
            _mb(at(nslcd, "peak", "pss")),
            _mb(at(nslcd, "idle", "pss")),
            *_other_work(mirror),
        ])  # fmt: skip
    return Table(
        "rosterd by size of the directory, slapd with syncprov; nslcd on the same slapd",
        ["users × groups × members", "mirrored, s", "processor, s", "memory MB: peak of a mirror", "peak of changes",
         "idle", "snapshot MB", "idle: processor ms/s", "nslcd MB: peak", "idle", "other work", "load average"],
        rows,
        [
            "Memory is PSS of all roles without the pages of the snapshot file, sampled every "
            f"{part['method']['sampled_every_ms']} ms; nslcd has no mirror.",
            f"Longest time between two samples: {_longest_gap(part):,} ms.",
            "While a mirror is made, add unmapped pages of memfds: up to "
            f"{', '.join(_unmapped(part)) or NONE} MB.",
            f"State of rosterd: {part['method']['state']}. Mirrored: median of up to 3 from an empty state.",
            "Other work: share of the machine's processor time that other programs used during the mirrors. Load average: "
            "before and after them.",
            *part["limits"],
            *part["faults"],
        ],
    )  # fmt: skip


def _unmapped(part):
    """By size: bytes that the backend passes to the publisher in a memfd."""
    return [
        _mb(at(each, "roster", "peak", "mirror", "peak_unmapped_memfds"))
        for each in part["sizes"].values()
        if at(each, "roster", "peak")
    ]


def _longest_gap(part):
    """The longest gap between samples of rosterd's memory at all sizes, in ms."""
    peaks = (at(each, "roster", "peak") or {} for each in part["sizes"].values())
    return max((peak["longest_gap_ms"] for moments in peaks for peak in moments.values()), default=0)


def _changes(part):
    rows, within_s = [], part["method"]["limits_s"]["seen"]
    for size, each in part["sizes"].items():
        of_nslcd = at(each, "nslcd", "kinds") or {}
        shown = size
        for kind, series in (at(each, "roster", "kinds") or {}).items():
            rows.append([
                shown,
                kind,
                *_seen(series, within_s),
                *_costs(series),
                f"{series['changes'] - series['unseen']}",
                *_seen(of_nslcd.get(kind), within_s),
                *_other_work(series),
            ])  # fmt: skip
            shown = ""
    return Table(
        "One change in the directory, at each size",
        ["users × groups × members", "kind", "seen p50, ms", "p99", "processor ms", "written MB", "changes",
         "nslcd: seen p50, ms", "p99", "other work", "load average"],
        rows,
        [
            "Membership: of a group of 500. Seen: by a running process, from the request to the directory.",
            "Processor (user and system) and written bytes (write_bytes, mapped stores included) are those of all "
            "roles, a change.",
            "nslcd searches the directory at each lookup. A change costs it nothing, and it writes nothing.",
        ],
    )  # fmt: skip


def _roles(part):
    """The costs of a change by role, for the first kind."""
    rows = []
    for size, each in part["sizes"].items():
        series = at(each, "roster", "kinds", "gecos")
        if not series:
            continue
        cpu, written = series["cpu_s_per_change_by_role"], series["written_bytes_per_change_by_role"]
        memory = at(each, "roster", "idle", "pss_by_role") or {}
        rows += [
            [size if i == 0 else "", role, f"{cpu[role] * 1000:.1f}", f"{written[role] / 1e6:.3f}", _mb(memory.get(role))]
            for i, role in enumerate(sorted(cpu, key=cpu.get, reverse=True))
        ]
    header = ["users × groups × members", "role", "processor ms", "written MB", "memory MB, idle"]
    return Table("One gecos changed, by role", header, rows, [])


def _seen(series, within_s):
    if not series:
        return [NONE, NONE]
    if not series["seen_ns"]:
        return [f"not within {within_s} s", NONE]
    return [f"{series['seen_ns'][name] / 1e6:,.1f}" for name in ("p50", "p99")]


def _costs(series):
    """Processor and written bytes of a change. Unknown when none was seen: the work was not over."""
    if not series["seen_ns"]:
        return [NONE, NONE]
    cpu_ms = series["cpu_s_per_change"] * 1000
    return [f"{cpu_ms:,.0f}" if cpu_ms >= 100 else f"{cpu_ms:.1f}", f"{series['written_bytes_per_change'] / 1e6:,.3f}"]


def _other_work(measured):
    if not measured:
        return [NONE, NONE]
    before, after = measured["load_average"]
    return [f"{measured['other_work_share'] * 100:.0f} %", f"{before:.1f}, {after:.1f}"]


def _not_within(roster):
    return f"not within {roster['within_s']} s" if "within_s" in roster else NONE


def _mb(count):
    return f"{count / 1e6:,.1f}" if count is not None else NONE


def at(found, *path):
    for step in path:
        if not isinstance(found, dict) or step not in found:
            return None
        found = found[step]
    return found
