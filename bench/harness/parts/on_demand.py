# SPDX-License-Identifier: MIT OR Apache-2.0
"""An on-demand domain: the cost of a request above a bare search, and that of many equal requests at once. SSSD and
nslcd, which always work so, beside it.

Each user is requested once, so that no cache has it.
"""

import itertools
import time

from .. import directory as d
from ..daemons import Nslcd, Rosterd, Sssd
from ..shared_servers import SLAPD
from ..ldap import equals, every, message, search_request
from ..measure import summary
from .id_and_getent import IdAnswer

READY_WITHIN_S = 60
CROWD = 50
CROWD_LARGE = 500


def load(bench):
    """Load shape: programs, data, repetitions."""
    rounds = f"{bench.questions} lookups of known and of unknown users each, {bench.crowds} crowds of each size"
    return {"corpora": str(bench.field.large), "clients": [1, CROWD, CROWD_LARGE], "rounds": rounds}


def measure(bench):
    shape = bench.field.large
    result = {"corpus": str(shape), "faults": [], "crowd_size": CROWD}
    with bench.field.serving(*SLAPD, shape) as server:
        for daemon in (Rosterd, Sssd, Nslcd):
            if bench.has_daemon(daemon):
                bench.progress.begin(f"on demand: {daemon.name}")
                result[daemon.name] = _of(bench, daemon, server, result["faults"])
    return result


def _of(bench, kind, server, faults):
    settings = {"mode": "on-demand"} if kind is Rosterd else {}
    fresh = (f"u{i}" for i in itertools.count())
    with kind(bench, bench.folder(f"on-demand-{kind.name}"), server, **settings) as daemon:
        begin = daemon.start()
        with daemon.helper(bench.tools / "lookup_latency") as ask:
            ready = wait_until_ready(daemon, ask)
            ask.ask(f"connect {server.port} {d.as_reader()}")
            result = {"ready_ns": ready - begin}
            result["known"] = _paired(ask, [next(fresh) for _ in range(2 * bench.questions)], True, faults, kind)
            unknown = [f"nobody-{i}" for i in range(2 * bench.questions)]
            result["unknown"] = _paired(ask, unknown, False, faults, kind)
            result["crowd"] = _crowds(bench, server, ask, fresh, faults, kind)
            result["crowd_known"] = _known_crowd(bench, ask, faults, kind)
            warm = ask.ask(f"programs {CROWD} /usr/bin/id lite")
            result["programs_warm_ns"] = int(warm[0])
    # The groups of `big`, which were never requested, by one program and by many at once.
    for count in (1, CROWD) if kind is not Sssd or bench.options.slow else (1,):
        bench.progress.begin(f"on demand: {kind.name}, {count} × id big")
        result[f"id_big_{count}"] = _cold_ids(bench, kind, server, settings, count, faults)
    return result


def wait_until_ready(daemon, ask):
    deadline = time.monotonic() + READY_WITHIN_S
    while int(ask.ask("user lite")[1]) < 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{daemon.name} does not answer: {daemon.said()[-2000:]}")
        time.sleep(0.02)
    return time.monotonic_ns()


def _paired(ask, names, there, faults, kind):
    """A bare search and a lookup through glibc in turn, each for another user."""
    bare, asked, above = [], [], []
    for for_search, for_question in zip(names[0::2], names[1::2]):
        filter = every(equals("objectClass", "posixAccount"), equals("uid", for_search))
        request = message(2, search_request(d.BASE, filter, d.USER_ATTRIBUTES)).hex()
        bare_ns, entries = map(int, ask.ask(f"search {request}"))
        ns, uid, error = map(int, ask.ask(f"user {for_question}"))
        if (uid >= 0) != there or entries != int(there):
            faults.append(f"{kind.name}, on demand: {for_question}: uid {uid}, error {error}")
        bare.append(bare_ns)
        asked.append(ns)
        above.append(ns - bare_ns)
    return {"bare_ns": summary(bare), "asked_ns": summary(asked), "above_ns": summary(above)}


def _crowds(bench, server, ask, fresh, faults, kind):
    """One process, and many processes that look up the same user at the same moment."""
    sizes = (1, CROWD) if kind is not Rosterd else (1, CROWD, CROWD_LARGE)
    walls = {size: [] for size in sizes}
    searches = {size: [] for size in sizes}
    with server.connect() as admin:
        for _ in range(bench.crowds):
            for size in sizes:
                before = server.searches(admin)
                wall, found = map(int, ask.ask(f"crowd {size} lite {next(fresh)}"))
                # Reading the counter is a search, too.
                searches[size].append(server.searches(admin) - before - 1)
                walls[size].append(wall)
                if found != size:
                    faults.append(f"{kind.name}, on demand: {size - found} of {size} at once found nobody")
    return {str(size): {"wall_ns": summary(walls[size]), "searches": summary(searches[size])} for size in sizes}


def _known_crowd(bench, ask, faults, kind):
    """The same with a known user: the time to wake so many programs."""
    walls = []
    for _ in range(bench.crowds):
        wall, found = map(int, ask.ask(f"crowd {CROWD} lite lite"))
        walls.append(wall)
        if found != CROWD:
            faults.append(f"{kind.name}, on demand: {CROWD - found} of {CROWD} at once did not find a known user")
    return summary(walls)


def _cold_ids(bench, kind, server, settings, count, faults):
    """`id big` of a daemon that has just been started on nothing; None when that took too long."""
    user = bench.field.directory(bench.field.large).user("big")
    walls = []
    for turn in range(bench.mirrors if kind is not Sssd else 1):
        with kind(bench, bench.folder(f"id-{kind.name}-{count}-{turn}"), server, **settings) as daemon:
            daemon.start()
            with daemon.helper(bench.tools / "lookup_latency") as ask:
                wait_until_ready(daemon, ask)
                limit = bench.patience_s
                wall, well = map(int, ask.ask(f"programs {count} timeout {limit} /usr/bin/id big"))
                if wall >= limit * 1e9:
                    return None
                walls.append(wall)
            output = bench.answer
            ran = daemon.room.run(["/usr/bin/id", "big"], output)
            fault = IdAnswer(user).fault(output.read_text(), ran["status"], True)
            if fault or well != count:
                faults.append(f"{kind.name}, on demand: id big: {fault or f'{count - well} of {count} failed'}")
    return summary(walls)
