# SPDX-License-Identifier: MIT OR Apache-2.0
"""Selects from the JSON of a run what `bench/picture` draws: panels of groups of bars.

Computes no layout: see picture_svg.py. A missing part leaves out its groups, and a missing peer its bar.
"""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace

from . import contenders as who
from .parts import exec, rootwrap
from .shared_servers import Field
from .targets import at

BASELINE, ROSTER, PEER = "baseline", "roster", "peer"
# In the order of the panels.
PARTS = ("mirror", "programs", "changes", "exec", "rootwrap", "lookups")
# A result without these is useless.
REQUIRED = {"cpu": "the machine", "time": "the date", "commit": "the commit"}
BASELINE_MODULE = "baseline module"
PEERS = {"sssd": "SSSD", "nslcd": "nslcd"}
SAMPLES_OF_P99 = 100
# Figures outside these limits are invalid: a thousandth of a nanosecond, and eleven days.
NS_MIN, NS_MAX = 1e-3, 1e15


class Unusable(Exception):
    """The file has nothing to draw; the message names the cause."""


@dataclass(frozen=True)
class Bar:
    label: str
    kind: str
    ns: float
    beyond: bool = False  # not finished within `ns`

    @property
    def value(self):
        return f"not within {duration(self.ns, digits=None)}" if self.beyond else duration(self.ns)


@dataclass(frozen=True)
class Group:
    title: str
    bars: tuple


@dataclass(frozen=True)
class Panel:
    heading: str
    groups: tuple

    @property
    def bars(self):
        return [bar for group in self.groups for bar in group.bars]


@dataclass(frozen=True)
class Picture:
    panels: tuple
    notes: tuple  # the small print


def picture(results):
    """The Picture of a run. Raises Unusable."""
    if not isinstance(results, dict):
        raise Unusable("not a result of bench/run: the JSON is not an object")
    missing = [name for field, name in REQUIRED.items() if not _text(at(results, "origin", field))]
    if missing:
        raise Unusable(f"not a result of bench/run: `origin` lacks {', '.join(missing)}")
    drawn = (
        _panel("How long does “id” take for a user in many groups?", _id_of_directory(results), _id_of_text(results)),
        _panel("When does a running process see a change in the directory?", _changes(results)),
        _panel("What does a privileged command cost?", _exec(results), _rootwrap(results)),
        _panel("How long does one lookup of a user take?", _lookups(results)),
    )
    drawn = tuple(panel for panel in drawn if panel)
    if not drawn:
        raise Unusable(_why_nothing(results))
    return Picture(drawn, (*_origin(results), *_explained(drawn), *_failed(results)))


def _why_nothing(results):
    there = [part for part in PARTS if part in results]
    if there:
        return f"no figure of Roster in {', '.join(there)}"
    others = sorted(part for part, value in results.items() if part not in ("origin", "options", "load", "figures") and value)
    has = f" The file has {', '.join(others)}." if others else ""
    return f"none of the parts {', '.join(PARTS)}.{has} `bench/run --json FILE PART…` measures them."


def _panel(heading, *groups):
    groups = tuple(group for group in groups if group)
    return Panel(heading, groups) if groups else None


def _group(title, *bars):
    """The baseline first, then the shortest. None without a bar of Roster: there is nothing to compare."""
    bars = [bar for bar in bars if bar]
    if not any(bar.kind == ROSTER for bar in bars):
        return None
    return Group(title, tuple(sorted(bars, key=lambda bar: (bar.kind != BASELINE, bar.ns, bar.beyond))))


def _bar(label, kind, ns, beyond=False):
    return Bar(label, kind, ns, beyond) if _is_number(ns) and NS_MIN <= ns <= NS_MAX else None


def _median(label, kind, series):
    """The bar of a summary. The label says if there was a single run."""
    return _bar(label + (", one run" if at(series, "n") == 1 else ""), kind, at(series, "median"))


# The panels' groups, each from one part.


def _id_of_directory(results):
    servers = at(results, "mirror", "roster")
    if not isinstance(servers, dict) or not servers:
        return None
    # The peers are measured with the first server.
    server, roster = next(iter(servers.items()))
    corpus = _text(at(results, "mirror", "corpus"))
    bars = [
        _median(BASELINE_MODULE, BASELINE, at(roster, "id_floor_ns")),
        _median("roster, first id", ROSTER, at(roster, "id_first_ns")),
        _median("roster, later id", ROSTER, at(roster, "id_ns")),
    ]
    for name, label in PEERS.items():
        peer = at(results, "mirror", "peers", server, name)
        bars += _first_and_later(label, peer)
    groups = _groups_of_user(corpus)
    return _group(_directory(f"{server}: {corpus}") + (f"; user in {groups} groups" if groups else ""), *bars)


def _first_and_later(label, peer):
    first = at(peer, "id_big_cold_ns")
    if peer and first is None and _is_positive(at(peer, "limit_s")):
        yield _bar(f"{label}, first id, one run", PEER, at(peer, "limit_s") * 1e9, beyond=True)
    else:
        yield _bar(f"{label}, first id, one run", PEER, first)
    yield _median(f"{label}, later id", PEER, at(peer, "id_big_warm_ns"))


def _groups_of_user(corpus):
    """The number of groups of the user `big` in the directory with this description; None if it is unknown."""
    for quick in (True, False):
        shape = Field(SimpleNamespace(options=SimpleNamespace(quick=quick))).large
        if str(shape) == corpus:
            return shape.groups_of_big + 1
    return None


def _id_of_text(results):
    corpora = at(results, "programs")
    if not isinstance(corpora, dict) or not corpora:
        return None
    # The only corpus that every peer answers.
    part = next(iter(corpora.values()))
    by = at(part, "tests", "id")
    groups = at(part, "groups")
    return _group(
        f"Text files: {_corpus(part)}" + (f"; user in {groups} groups" if isinstance(groups, int) else ""),
        *_sources(by),
    )


def _lookups(results):
    corpora = at(results, "lookups")
    if not isinstance(corpora, dict) or not corpora:
        return None
    part = next(iter(corpora.values()))
    title = f"getpwnam through glibc, random users: {_corpus(part)}"
    return _group(title, *_sources(at(part, "glibc", "getpwnam")))


def _sources(by):
    """Bars of the sources of users: the lines of nsswitch.conf."""
    return [
        _median(BASELINE_MODULE, BASELINE, at(by, who.FLOOR.name)),
        _median("roster", ROSTER, at(by, who.ROSTER.name)),
        _median("nscd in front of roster, warm", PEER, at(by, who.NSCD.name)),
        _median("libnss-cache", PEER, at(by, who.LIBNSS_CACHE.name)),
        _median("glibc files", PEER, at(by, who.FILES.name)),
    ]


def _corpus(part):
    """The text for a corpus such as "10 k × 10 k × 500, zipf"."""
    corpus = _text(at(part, "corpus"))
    found = re.fullmatch(r"(\d+(?: [kM])?) × (\d+(?: [kM])?) × (\d+), (\w+)", corpus)
    if not found:
        return corpus
    users, groups, members, shape = (each.replace(" k", ",000").replace(" M", ",000,000") for each in found.groups())
    return f"{users} users, {groups} groups of {members} {shape} members"


def _directory(name):
    """The text for a directory such as "slapd, rfc2307: 10 users, 5 groups × 3"."""
    server, _, corpus = name.partition(": ")
    return f"LDAP directory ({server}): " + re.sub(r"groups × (\d+)$", r"groups of \1 members", corpus)


def _changes(results):
    corpora = at(results, "changes", "roster")
    if not isinstance(corpora, dict) or not corpora:
        return None
    # The corpus of the peers' measurements.
    corpus, part = next(iter(corpora.items()))
    series = at(part, "all")
    count = at(series, "n")
    enough = isinstance(count, int) and count >= SAMPLES_OF_P99
    longest, field = ("99th percentile", "p99") if enough else ("longest", "max")
    bars = [
        _bar("roster, median", ROSTER, at(series, "p50")),
        _bar(f"roster, {longest}", ROSTER, at(series, field)),
    ]
    for name, label in PEERS.items():
        peer = at(results, "changes", "peers", name)
        seen = at(peer, "seen_ns")
        if peer and seen is None and _is_positive(at(peer, "within_ms")):
            bars.append(_bar(f"{label}, one change", PEER, at(peer, "within_ms") * 1e6, beyond=True))
        else:
            bars.append(_bar(f"{label}, one change", PEER, seen))
    changes = f"; {count} changes" if isinstance(count, int) else ""
    return _group(f"{_directory(corpus)}{changes}", *bars)


def _exec(results):
    by = at(results, "exec", "programs")
    return _group(
        "“true” as root, one process each",
        _median("true alone", BASELINE, at(by, exec.BARE)),
        _median("roster-exec", ROSTER, at(by, exec.OURS)),
        _median("sudo", PEER, at(by, "sudo")),
        _median("doas", PEER, at(by, "doas")),
    )


def _rootwrap(results):
    by = at(results, "rootwrap", "calls")
    return _group(
        "“true” as root from Python, as OpenStack services call it",
        _median("subprocess.run alone", BASELINE, at(by, rootwrap.FLOOR)),
        _median("roster-rootwrap daemon", ROSTER, at(by, rootwrap.OURS)),
        _median("oslo.rootwrap daemon", PEER, at(by, rootwrap.ORIGINAL)),
        _median("sudo + roster-rootwrap", ROSTER, at(by, "sudo roster-rootwrap")),
        _median("sudo + oslo.rootwrap", PEER, at(by, "sudo rootwrap")),
    )


# The small print.


def _origin(results):
    origin, options = results["origin"], at(results, "options")
    machine = [_text(origin["cpu"])]
    if at(origin, "processors"):
        machine.append(f"{at(origin, 'processors')} processors")
    if _is_positive(at(origin, "memory_mb")):
        machine.append(f"{at(origin, 'memory_mb') / 1024:.0f} GiB of memory")
    machine.append(_text(at(origin, "distribution")))
    machine.append(f"Linux {_text(at(origin, 'kernel'))}" if at(origin, "kernel") else "")
    machine.append(_text(at(origin, "glibc")))
    yield f"Machine: {_listed(machine)}."
    load = [at(origin, f"load_average_{when}") for when in ("before", "after")]
    yield "Date: " + _listed([
        _text(origin["time"]),
        f"commit {_text(origin['commit'])}",
        f"{at(options, 'repetitions')} rounds" if at(options, "repetitions") else "",
        "quick run" if at(options, "quick") is True else "",
        "load average {:.1f} before, {:.1f} after".format(*load) if all(map(_is_number, load)) else "",
    ]) + "."  # fmt: skip
    packages = at(origin, "packages")
    if isinstance(packages, dict):
        listed = _listed([f"{name} {version}" for name, version in packages.items() if version])
        if listed:
            yield f"Peers: {listed}."


def _explained(drawn):
    labels = {bar.label for panel in drawn for bar in panel.bars}
    sentences = []
    if BASELINE_MODULE in labels:
        sentences.append("The baseline module is an NSS module with prebuilt groups without members.")
    if any(label.startswith(PEERS["nslcd"]) for label in labels):
        sentences.append("nslcd searches the directory at each lookup.")
    return [" ".join(sentences)] if sentences else []


def _failed(results):
    faults = sum(_faults(results))
    if faults:
        yield f"Some replies in this run were wrong: {faults}. The result file lists them."
    failures = at(results, "failures")
    if isinstance(failures, list) and failures:
        yield f"Parts that failed: {_listed([str(each).partition(':')[0] for each in failures])}."


def _faults(results):
    for part in PARTS:
        for each in (results.get(part), *_values(results.get(part))):
            faults = at(each, "faults")
            yield len(faults) if isinstance(faults, list) else 0


def _values(part):
    return part.values() if isinstance(part, dict) else ()


def _listed(words):
    return ", ".join(filter(None, words))


def _text(value):
    return value.strip() if isinstance(value, str) else ""


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value):
    return _is_number(value) and value > 0


def duration(ns, digits=3):
    """With that many significant digits, and the unit that leaves 1 to 999 before the point. None: as few as needed."""
    if digits:
        ns = float(f"{ns:.{digits - 1}e}")
    factor, unit = next((each for each in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if ns >= each[0]), (1, "ns"))
    amount = ns / factor
    if not digits:
        return f"{amount:g} {unit}"
    return f"{amount:,.{max(0, digits - 1 - math.floor(math.log10(amount)))}f} {unit}"
