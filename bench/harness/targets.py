# SPDX-License-Identifier: MIT OR Apache-2.0
"""The figures to reach, each computed from the JSON of a run and from nothing else."""

from dataclasses import dataclass
from typing import Callable, Optional

SHAPES = ("consecutive", "zipf", "random")
SMALL, LARGE, HUGE = (10_000, 10_000, 500), (100_000, 100_000, 500), (1_000_000, 1_000_000, 10)


@dataclass(frozen=True)
class Figure:
    """One target: `measured` returns the worst number that it covers, or None if it was not measured. The target is met
    if the number is not above the goal, or, with `at_least`, not below it."""

    what: str
    goal: float
    unit: str
    measured: Callable[[dict], Optional[float]]
    among: Callable[[dict], str] = lambda results: ""  # out of how many
    at_least: bool = False


def judged(results):
    """Name, goal, measured, met (None: not measured), as plain data."""
    rows = []
    for figure in FIGURES:
        value = figure.measured(results)
        met = None if value is None else value >= figure.goal if figure.at_least else value <= figure.goal
        row = {"what": figure.what, "goal": figure.goal, "unit": figure.unit, "measured": value, "met": met}
        row["at_least"] = figure.at_least
        rows.append(row | {"among": "" if value is None else figure.among(results)})
    return rows


def worst(values):
    """The largest; None unless all of them were measured."""
    values = list(values)
    return max(values) if values and None not in values else None


def at(results, *path):
    for step in path:
        if not isinstance(results, dict) or step not in results:
            return None
        results = results[step]
    return results


def ratio(of, to):
    return of / to if of is not None and to else None


def scaled(value, by):
    return value * by if value is not None else None


def id_ratio(contender, shape):
    def measured(results):
        def median(name):
            return at(results, "programs", shape, "tests", "id", name, "median")

        return ratio(median(contender), median("floor (no members)"))

    return measured


def straight(series, users, shapes=SHAPES):
    return lambda results: worst(
        at(results, "lookups", f"{users} {shape}", "straight", series, "roster", "median") for shape in shapes
    )


def compiled(field, corpus, by, shapes=("consecutive",)):
    """`corpus` is users, groups, members."""

    def measured(results):
        builds = at(results, "compile") or {}
        named = {(each["users"], each["groups"], each["members"], each["shape"]): each for each in builds.values()}
        values = (named.get((*corpus, shape)) for shape in shapes)
        return worst(
            None if build is None else scaled(build[field] if field.endswith("bytes") else build[field]["median"], by)
            for build in values
        )

    return measured


def of_module(field):
    return lambda results: at(results, "module", "roster", field)


def dlopen_ratio(results):
    times = [at(results, "module", name, "dlopen_ns", "median") for name in ("roster", "floor (no members)")]
    return ratio(*times)


def wrong_answers(results):
    fresh = at(results, "freshness")
    return fresh and fresh["torn"] + fresh["missing"] + fresh["backwards"] + fresh["never_shown"]


def mirrored(*path, by, servers=("slapd, rfc2307", "slapd, rfc2307bis", "389-ds, rfc2307bis")):
    """The worst over these servers."""
    return lambda results: worst(
        scaled(at(results, "mirror", "roster", server, *path), by) for server in servers
    )


def changed(field, server, users):
    """At that server, with about so many users."""

    def measured(results):
        series = (at(results, "changes", "roster") or {}).values()
        found = [each for each in series if each["server"] == server and each["users"] // 1000 == users // 1000]
        return worst(scaled(at(each, "all", field), 1e-6) for each in found)

    return measured


def crowd_ratio(results):
    crowd = at(results, "on-demand", "roster", "crowd") or {}
    return ratio(*(at(crowd, size, "wall_ns", "median") for size in ("50", "1")))


def logged_in(*path):
    return lambda results: at(results, "login", *path)


def log_in_ratio(results):
    return ratio(*(logged_in("crowd", name, "per_s", "median")(results) for name in ("roster", "sssd")))


def unreachable(*path):
    ways = ("is frozen", "refuses connections")
    return lambda results: worst(logged_in("away", way, "roster", *path)(results) for way in ways)


MAPS = {"ordinary pages": "roster nscd", "huge pages": "roster nscd, huge pages"}


def mapped(*path):
    return lambda results: at(results, "nscd", *path)


def mapped_at_worst(*path):
    """The worse of both kinds of pages."""
    return lambda results: worst(mapped(*path, name, "median")(results) for name in MAPS.values())


def mapped_ratio(pages, test="id", to=("id", "floor (no members)")):
    def measured(results):
        medians = [(test, MAPS[pages]), to]
        return ratio(*(mapped("programs", of, name, "median")(results) for of, name in medians))

    return measured


def first_ratio(results):
    return worst(mapped_ratio(pages, "first id", ("id", name))(results) for pages, name in MAPS.items())


def made(users, groups, members):
    def measured(results):
        of_corpora = mapped("made")(results) or {}
        found = [each for each in of_corpora.values() if each["shape"] == [users, groups, members]]
        return worst(scaled(at(each, "ns", "median"), 1e-9) for each in found)

    return measured


def unexplained(results):
    bursts = at(results, "idle", "unexplained")
    return None if bursts is None else len(bursts)


def called(one, other):
    """The duration of a call, in comparison."""
    return lambda results: ratio(*(at(results, "rootwrap", "calls", name, "median") for name in (one, other)))


def crowded(field):
    return lambda results: at(results, "rootwrap", "threads", "roster", field, "median")


def throughput_ratio(results):
    threads = at(results, "rootwrap", "threads") or {}
    return ratio(*(at(threads, name, "per_s", "median") for name in ("roster", "original")))


def passed_through(*path):
    return lambda results: at(results, "rootwrap", "large", "roster", *path)


def executed(*path):
    return lambda results: at(results, "exec", *path)


def executed_ratio(results):
    programs = at(results, "exec", "programs") or {}
    return ratio(*(at(programs, name, "median") for name in ("roster-exec", "true")))


def asked(part, *path):
    """A figure of roster-lab itself."""
    return lambda results: at(results, "lab", part, *path, "median")


def asked_ratio(part, one, other, field, *path):
    def measured(results):
        return ratio(*(at(results, "lab", part, *path, name, field, "median") for name in (one, other)))

    return measured


def told_off(results):
    servers = (at(results, "lab", "delays") or {}).values()
    return scaled(worst(each["off"] for shares in servers for each in shares.values()), 100)


LAB, WORKER = "roster-lab", "roster-lab under Locust"
FIGURES = [
    *(
        Figure(f"`id`, 501 groups, against the floor module: {shape}", 1.35, "×", id_ratio("roster", shape))
        for shape in SHAPES
    ),
    Figure("straight, 10 k, every shape: getpwnam", 50, "ns", straight("getpwnam", 10_000)),
    Figure("straight, 10 k, every shape: getpwuid", 30, "ns", straight("getpwuid", 10_000)),
    Figure("straight, 10 k, every shape: getgrgid of 500", 800, "ns", straight("getgrgid.500", 10_000)),
    Figure("straight, 10 k, every shape: groups of a user", 250, "ns", straight("initgroups", 10_000)),
    Figure("straight, 1 M: getpwnam", 200, "ns", straight("getpwnam", 1_000_000, ["consecutive"])),
    Figure("snapshot, 10 k × 10 k × 500, every shape", 24, "MB", compiled("snapshot_bytes", SMALL, 1e-6, SHAPES)),
    Figure("build, 10 k × 10 k × 500, every shape: wall", 0.5, "s", compiled("wall_ns", SMALL, 1e-9, SHAPES)),
    Figure("build, 10 k × 10 k × 500, every shape: peak", 150, "MiB", compiled("peak_kb", SMALL, 1 / 1024, SHAPES)),
    Figure("build, 1 M × 1 M × 10, every shape: processor time", 3, "s", compiled("cpu_us", HUGE, 1e-6, SHAPES)),
    Figure("build, 1 M × 1 M × 10, every shape: peak", 700, "MiB", compiled("peak_kb", HUGE, 1 / 1024, SHAPES)),
    Figure("module: size", 40, "kB", lambda results: scaled(of_module("bytes")(results), 1e-3)),
    Figure("module: relative relocations", 0, "", of_module("relative_relocations")),
    Figure("module: dlopen against a C module", 1.0, "×", dlopen_ratio),
    Figure(
        "an old answer to a question asked after a new generation, at most",
        100,
        "ms",
        lambda results: scaled(at(results, "freshness", "last_old_answer_ns", "max"), 1e-6),
    ),
    Figure(
        "torn, missing, backward answers under constant publishing",
        0,
        "",
        wrong_answers,
        lambda results: f" in {results['freshness']['calls']:,}",
    ),
    Figure("`id big` right after a full mirror, every server", 4, "ms", mirrored("id_first_ns", "median", by=1e-6)),
    *(
        Figure(f"`id big` after a reboot, directory down: {moment}", 4, "ms",
               mirrored("id_after_boot_ns", field, "median", by=1e-6))
        for field, moment in (("first", "at once, files not in memory yet"), ("later", "a second later"))
    ),
    Figure(
        "full mirror from slapd, either schema", 6, "s",
        mirrored("wall_ns", "median", by=1e-9, servers=("slapd, rfc2307", "slapd, rfc2307bis")),
    ),
    Figure("the same by the key of the host without TLS, against a password over TLS", 1.3, "×",
           lambda results: ratio(at(results, "binds", "key of the host, no TLS", "wall_ns", "median"),
                                 at(results, "binds", "password over TLS", "wall_ns", "median"))),
    *(
        Figure(f"change in {server} → seen by a running process, 10 k × 10 k × 500: {field}", goal, "ms",
               changed(field, server, 10_201))
        for server in ("slapd", "389-ds")
        for field, goal in (("p50", 250), ("p99", 700))
    ),
    Figure("the same in slapd, 2,000 users: p50", 100, "ms", changed("p50", "slapd", 2_000)),
    Figure("the same in slapd, 200,000 users: p99", 2_000, "ms", changed("p99", "slapd", 200_000)),
    Figure("a user asked on demand, above the bare search", 1, "ms",
           lambda results: scaled(at(results, "on-demand", "roster", "known", "above_ns", "median"), 1e-6)),
    Figure("50 who ask for the same user, against one", 1.5, "×", crowd_ratio),
    Figure("back online after the server returns, at most", 2, "s",
           lambda results: scaled(at(results, "outage", "back_ns", "max"), 1e-9)),
    Figure("online login above a bare bind on a warm connection", 1.5, "ms",
           lambda results: scaled(logged_in("online", "roster", "above_ns", "median")(results), 1e-6)),
    *(
        Figure(f"login by Kerberos above a bare AS exchange, with {name}", 1.5, "ms",
               lambda results, name=name: scaled(logged_in("krb5", name, "above_ns", "median")(results), 1e-6))
        for name in ("no key of the host", "a key of the host")
    ),
    Figure("offline login above the Argon2id verification in it", 1, "ms",
           lambda results: scaled(logged_in("offline", "roster", "own", "above_ns", "median")(results), 1e-6)),
    Figure("logins a second, 32 at once on two processors, against SSSD's", 3, "×", log_in_ratio, at_least=True),
    Figure("account decision, cached", 0.5, "ms",
           lambda results: scaled(logged_in("account", "roster", "median")(results), 1e-6)),
    Figure("directory frozen or gone: the first offline answer, at most", 1, "s",
           lambda results: scaled(unreachable("first_ns", "max")(results), 1e-9)),
    Figure("the same: those after it, above the verification", 20, "ms",
           lambda results: scaled(unreachable("later_above_ns", "median")(results), 1e-6)),
    Figure("roster nscd: `id`, 501 groups, against the floor module, huge pages", 0.90, "×", mapped_ratio("huge pages")),
    Figure("the same, ordinary pages", 1.05, "×", mapped_ratio("ordinary pages")),
    Figure("roster nscd: the first `id` against a later one, either pages", 1.6, "×", first_ratio),
    *(
        Figure(f"roster nscd: getpwnam through glibc, {users}, {pages}", goal, "ns",
               mapped(part, "glibc", "getpwnam", name, "median"))
        for users, part, goal in (("10 k", "lookups", 100), ("1 M", "lookups of many", 500))
        for pages, name in MAPS.items()
    ),
    Figure("roster nscd: an unknown name, again, either pages", 120, "ns",
           mapped_at_worst("single", "an unknown name, again")),
    Figure("roster nscd: a local user, either pages", 120, "ns", mapped_at_worst("single", "a local user")),
    Figure("roster nscd: a user of nss-systemd, either pages", 120, "ns",
           mapped_at_worst("single", "a user of nss-systemd")),
    Figure("roster nscd: a generation seen, p99", 5, "ms",
           lambda results: scaled(mapped("seen", "roster nscd", "p99")(results), 1e-6)),
    Figure("roster nscd: both maps of 10 k × 10 k × 500 made", 0.4, "s", made(*SMALL)),
    Figure("roster nscd: both maps of 1 M × 1 M × 10 made", 3, "s", made(*HUGE)),
    Figure("memory of all roles, idle (PSS)", 120, "MB", mirrored("idle", "pss", by=1e-6)),
    Figure("memory of all roles, peak of a full mirror (PSS)", 400, "MB", mirrored("peak", "pss", by=1e-6)),
    Figure("idle wake-ups that no timer explains", 0, "", unexplained,
           lambda results: f" of {results['idle']['bursts']}"),
    Figure("unchanged client, one call of `true`, against subprocess.run", 1.25, "×",
           called("roster", "subprocess.run")),
    Figure("unchanged client, 32 threads: calls a second against the original's", 2.5, "×", throughput_ratio,
           at_least=True),
    Figure("the same: p99 of a call, the client's own lock included", 100, "ms",
           lambda results: scaled(crowded("p99_ns")(results), 1e-6)),
    Figure("the same: p99 from when the thread has that lock", 100, "ms",
           lambda results: scaled(crowded("inner_p99_ns")(results), 1e-6)),
    Figure("unchanged client, 200 MB of stdin, against the client's own encoding", 1.5, "×",
           passed_through("stdin_ratio", "median")),
    Figure("memory of the daemon, 200 MB in and out, at most", 30, "MB",
           lambda results: scaled(passed_through("peak_bytes")(results), 1e-6)),
    Figure("`roster-exec true`, a process", 1.0, "ms",
           lambda results: scaled(executed("programs", "roster-exec", "median")(results), 1e-6)),
    Figure("the same against `true` itself", 2, "×", executed_ratio),
    Figure("roster_exec, 32 clients at once on two processors: commands a second", 2500, "",
           executed("crowd", "roster_exec.run", "per_s", "median"), at_least=True),
    Figure("roster_exec, 200 MB through a pipe, against the same without it", 1.2, "×",
           executed("large", "descriptors", "ratio", "median")),
    Figure("the same, in and out of the caller", 1.2, "×", executed("large", "through", "ratio", "median")),
    Figure("LDAP binds of one client core, connections reused", 90_000, "/s",
           asked("binds", "reuse", LAB, "per_client_core"), at_least=True),
    Figure("the same, a connection each", 16_000, "/s",
           asked("binds", "new", LAB, "per_client_core"), at_least=True),
    *(
        Figure(f"under a master of Locust against that, {way}", 0.9, "×",
               asked_ratio("binds", WORKER, LAB, "per_client_core", way), at_least=True)
        for way in ("reuse", "new")
    ),
    Figure("DNS queries of one client core against dnsperf's", 1.0, "×",
           asked_ratio("dns", LAB, "dnsperf", "per_client_core"), at_least=True),
    Figure("Kerberos logins, each another nonce: client's processor", 15, "µs",
           asked("krb5", LAB, "client_cpu_us")),
    Figure("commands a second against a bare posix_spawn loop", 0.9, "×",
           asked_ratio("commands", LAB, "posix_spawn", "rate"), at_least=True),
    Figure("percentiles of known delays, also with a stall of 1 s: off by at most", 1, "%", told_off),
]
