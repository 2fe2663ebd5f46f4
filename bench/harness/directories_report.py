# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables about rosterd, SSSD and nslcd beside real directory servers."""

from .table import Table

ROLES_SHOWN = 4


def tables(results):
    made = []
    if "mirror" in results:
        made += [_mirror(results["mirror"]), _memory(results["mirror"]), _peers(results["mirror"])]
    if "binds" in results:
        made.append(_binds(results["binds"]))
    if "changes" in results:
        made += [_changes(results["changes"]), _parts(results["changes"]), _storm(results["changes"]["storm"])]
    if "on-demand" in results:
        made += [_questions(results["on-demand"]), _crowds(results["on-demand"])]
    if "outage" in results:
        made.append(_outage(results["outage"]))
    if "idle" in results:
        made.append(_idle(results["idle"]))
    return made


def _mirror(part):
    rows = [
        [
            server,
            _s(each["wall_ns"]["median"]),
            _s(each["bare_search_ns"]["median"]),
            f"{each['cpu_until_snapshot_s']['median']:.2f}",
            f"{each['cpu_settled_s']['median']:.2f}",
            f"{each['snapshot_bytes'] / 1e6:.1f}",
            _ms(each["id_first_ns"]["median"]),
            _ms(each["id_ns"]["median"]),
            _ms(each["id_floor_ns"]["median"]),
            _ms(each["id_after_boot_ns"]["first"]["median"]),
            _ms(each["id_after_boot_ns"]["later"]["median"]),
        ]
        for server, each in part["roster"].items()
    ]
    return Table(
        f"rosterd, a full mirror, medians: {part['corpus']}",
        ["server", "start to snapshot, s", "bare searches, s", "processor s", "with cache", "snapshot MB",
         "first id big, ms", "later", "the floor then", "after a reboot, directory down", "a second later"],
        rows,
        ["Processor time is that of all roles, until the first snapshot and until the durable cache is written, too.",
         "The floor answers with groups that have no members, and stands behind files as roster does.",
         *part["faults"]],
    )  # fmt: skip


def _binds(part):
    rows = [
        [name, _s(each["wall_ns"]["median"]), f"{each['cpu_until_snapshot_s']['median']:.2f}"]
        for name, each in part.items()
        if isinstance(each, dict)
    ]
    columns = ["bind", "start to snapshot, s", "processor s"]
    return Table(f"rosterd, a full mirror of slapd by each bind, medians: {part['corpus']}", columns, rows, part["faults"])


def _memory(part):
    rows = []
    for server, each in part["roster"].items():
        for moment in ("idle", "peak"):
            roles = sorted(each[f"{moment}_by_role"].items(), key=lambda item: -item[1]["pss"])[:ROLES_SHOWN]
            rows.append([
                server if moment == "idle" else "",
                moment,
                _mb(each[moment]["pss"]),
                _mb(each[moment]["rss"]),
                ", ".join(f"{role} {_mb(memory['pss'])}" for role, memory in roles),
            ])  # fmt: skip
        rows.append(["", "highest of each role", "", _mb(each["peak_of_roles"]), ""])
    header = ["server", "", "PSS", "RSS", "most of it (PSS)"]
    return Table("rosterd, memory of all roles together, MB", header, rows, [])


def _peers(part):
    rows = []
    for server, peers in part["peers"].items():
        for name, each in peers.items():
            cold = each["id_big_cold_ns"]
            given_up = f"not within {each['limit_s']} s"
            offline = each.get("id_big_offline_ns")
            rows.append([
                name,
                server,
                _s(each["ready_ns"]),
                _ms(each["id_lite_cold_ns"]),
                given_up if cold is None else _ms(cold),
                _ms(each["id_big_warm_ns"]["median"]) if "id_big_warm_ns" in each else "–",
                "–" if cold is None else "no answer" if offline is None else _ms(offline),
                f"{_mb(each['memory_idle']['pss'])} / {_mb(each['memory_after']['pss'])}",
            ])  # fmt: skip
    return Table(
        "Peers on the same directory",
        ["", "server", "start to answer, s", "id lite cold, ms", "id big cold", "id big warm", "directory down",
         "memory (PSS) idle / after, MB"],
        rows,
        [],
    )  # fmt: skip


def _changes(part):
    def cells(series):
        return [f"{series[each] / 1e6:.1f}" for each in ("p50", "p99", "max")] if series else ["never"] * 3

    rows = [
        [name, *cells(each["user"]), *cells(each["group"]), str(each["count"]), str(each["unseen"])]
        for name, each in part["roster"].items()
    ]
    notes = [
        f"{name}: seen after {_s(each['seen_ns'])} s" if each["seen_ns"]
        else f"{name}: not seen within {each['within_ms'] / 1000:.0f} s"
        for name, each in part["peers"].items()
    ]  # fmt: skip
    return Table(
        "A change in the directory → seen by a running process, ms from the request to change it",
        ["server: corpus", "user p50", "p99", "max", "group p50", "p99", "max", "changes", "unseen"],
        rows,
        notes + part["faults"],
    )


def _parts(part):
    names = {
        "server": "the server's reply",
        "told": "the directory tells",
        "fetch": "back-end and fetch",
        "publish": "publication",
        "reader": "reader",
    }
    rows = [
        [name, *(_ms(each["parts"][field]["median"]) if field in each["parts"] else "–" for field in names)]
        for name, each in part["roster"].items()
    ]
    notes = ["Medians; the last four add up to about the whole. Readers look for a new file every 50 ms."]
    return Table("Where the time goes, ms", ["server: corpus", *names.values()], rows, notes)


def _storm(storm):
    rows = [
        ["changes, one after the other", f"{storm['changes']:,} in {_s(storm['server_ns'])} s"],
        ["last change seen after", f"{_s(storm['seen_ns'])} s" if storm["seen_ns"] else "never"],
        ["publications", str(storm["publications"])],
        ["bytes published, MB", _mb(storm["publications"] * storm["snapshot_bytes"])],
        ["bytes written in all, MB", _mb(storm["written_bytes"])],
        ["processor time of all roles, s", f"{storm['cpu_s']:.2f}"],
    ]
    return Table("A storm of changes in slapd", ["", ""], rows, [])


def _questions(part):
    rows = []
    for name in ("roster", "sssd", "nslcd"):
        for what in ("known", "unknown") if name in part else ():
            each = part[name][what]
            rows.append([
                name if what == "known" else "",
                "a user" if what == "known" else "nobody",
                *(_ms(each[field]["median"]) for field in ("bare_ns", "asked_ns", "above_ns")),
                f"{_ms(each['above_ns']['p25'])} – {_ms(each['above_ns']['p75'])}",
                str(each["asked_ns"]["n"]),
            ])  # fmt: skip
    return Table(
        f"Users that nobody asked for before, ms, medians: {part['corpus']}",
        ["", "asked for", "bare search", "through glibc", "above it", "middle half", "questions"],
        rows,
        ["Bare search and question in turn, in the same process, each for another user.", *part["faults"]],
    )


def _crowds(part):
    rows = []
    for name in ("roster", "sssd", "nslcd"):
        if name not in part:
            continue
        each = part[name]
        one = each["crowd"]["1"]["wall_ns"]["median"]
        for size, crowd in each["crowd"].items():
            rows.append([
                name if size == "1" else "",
                f"{size} × getpwnam",
                _ms(crowd["wall_ns"]["median"]),
                f"{crowd['wall_ns']['median'] / one:.2f}",
                f"{crowd['searches']['median']:.0f}",
            ])  # fmt: skip
        known = _ms(each["crowd_known"]["median"])
        rows.append(["", f"{part['crowd_size']} × getpwnam, known", known, "", ""])
        for size in ("1", str(part["crowd_size"])):
            cold = each.get(f"id_big_{size}")
            first = each.get("id_big_1")
            if f"id_big_{size}" in each:
                ratio = f"{cold['median'] / first['median']:.2f}" if cold and first else ""
                rows.append(["", f"{size} × id big", _ms(cold["median"]) if cold else "given up", ratio, ""])
        rows.append(["", f"{part['crowd_size']} × id lite, known", _ms(each["programs_warm_ns"]), "", ""])
    return Table(
        "Many who ask for the same at once, until the last has the answer, ms",
        ["", "", "wall", "to one", "searches in the directory"],
        rows,
        [],
    )


def _outage(part):
    rows = [
        [f"away for {each['outage_s']} s", _s(each["back_ns"]) if each["back_ns"] else "not within a minute"]
        for each in part["roster"]
    ]
    if part["sssd"]:
        back = part["sssd"]["back_ns"]
        rows.append(["SSSD, away for 3 s", _s(back) if back else f"not within {part['sssd']['within_s']} s"])
    return Table("slapd killed and started again: its first answer → a change seen, s", ["", ""], rows, part["faults"])


def _idle(part):
    rows = [[role, str(count)] for role, count in part["wakeups"].items()]
    notes = [f"{part['cpu_s']:.2f} s of processor time."]
    if "timers" in part:
        notes += [f"Timers of {role} ran out at {', '.join(map(str, when))} s." for role, when in part["timers"].items()]
        notes += [f"No timer: {each}" for each in part["unexplained"]]
    return Table(f"Idle: wake-ups of each role in {part['seconds']} s", ["role", "wake-ups"], rows, notes)


def _ms(ns):
    ms = ns / 1e6
    return f"{ms:,.0f}" if abs(ms) >= 1000 else f"{ms:.1f}" if abs(ms) >= 10 else f"{ms:.3f}"


def _s(ns):
    return f"{ns / 1e9:.2f}"


def _mb(count):
    return f"{count / 1e6:.1f}"
