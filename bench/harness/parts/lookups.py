# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lookups inside one process, in ns each: straight into the modules, and through glibc.

Keys are looked up in random order over the whole corpus, with everything in memory. So the measurement is neither the
same hot line again and again nor a cold disk. A module never waits, so its cost is its processor time, which other work
on the machine disturbs least. Through glibc some wait for a daemon, so wall time is measured.
"""

import time
from contextlib import ExitStack

from .. import contenders as who
from ..corpus import Keys
from ..measure import rounds, summary

BATCH_NS = 1_000_000  # short against a time slice: most batches are not interrupted by others
TRIAL_NS = 500_000
WAYS = {"straight": "straight into the module", "glibc": "through glibc"}
PASSED, ON_PROCESSOR = 0, 1  # the two numbers that `time` of lookup.c gives
# Until every key was looked up once: then each key is mapped, cached or known to nscd.
WARM_UP_S = 20
WARM_UP_STEPS = 50
COLD_DOES_NOT_MATTER_NS = 1_000_000  # slower lookups gain nothing from warm caches
SLOW_BUDGET_S = 3  # samples of one contender in one series
CHECK_NS = 2_000_000_000


def load(bench, corpora):
    """Load shape: programs, data, repetitions."""
    clients = f"1 thread, batches of {BATCH_NS / 1e6:g} ms, keys in random order over the whole corpus"
    return {"corpora": corpora, "clients": clients, "rounds": bench.batches}


def measure(bench, corpus, straight, through_glibc):
    """Summaries in ns by way, series and contender, for one corpus."""
    place = f"lookups-{corpus.shape.shape}-{corpus.shape.users}"
    bench.progress.begin(f"keys and answers of {corpus.shape}")
    keys = Keys(corpus, bench.folder(f"{place}-keys"), bench.seed)
    setting = bench.setting(corpus, place)
    result = {"corpus": str(corpus.shape), "note": corpus.note, "keys": {}, "straight": {}, "glibc": {}, "faults": []}
    result["keys"] = {series: len(listed) for series, listed in keys.series.items()}
    with ExitStack() as stack:
        ways = {"straight": {}, "glibc": {}}
        for each in filter(bench.has, dict.fromkeys([*straight, *through_glibc])):
            room = stack.enter_context(setting.room(each))
            if each.daemon or each.maps:
                pid = setting.start(each, room)
                stack.callback(room.stop_daemon, pid)
            if each in straight:
                file = each.module or f"libnss_{each.service}.so.2"
                module = [bench.modules / file, each.service]
                ways["straight"][each] = stack.enter_context(room.helper(bench.tools / "lookup", keys.folder, *module))
            if each in through_glibc:
                ways["glibc"][each] = stack.enter_context(room.helper(bench.tools / "lookup", keys.folder))
        for way, helpers in ways.items():
            for series in keys.series:
                bench.progress.begin(f"{series}, {WAYS[way]}, {corpus.shape}")
                clock = ON_PROCESSOR if way == "straight" else PASSED
                summaries, faults = _series(bench, keys, series, helpers, clock)
                result[way][series] = summaries
                result["faults"] += [f"{way}: {series}: {fault}" for fault in faults]
    return result


def _series(bench, keys, series, helpers, clock):
    batch, faults = {}, []
    for each, helper in helpers.items():
        if helper.ask(f"time {series} 1") == ["cannot"]:
            continue
        # Before all else: a daemon's memory has entries in the order of their first lookup.
        ns = warm_up(helper, series, len(keys.series[series]))
        fault = fault_of(keys, series, each, helper, max(1, int(CHECK_NS / ns)))
        if fault:
            faults.append(f"{each.name}: {fault}")
            continue
        batch[each] = count_for(helper, series, BATCH_NS)

    def once(each):
        return int(helpers[each].ask(f"time {series} {batch[each]}")[clock]) / batch[each]

    samples = rounds(list(batch), bench.batches, SLOW_BUDGET_S, once, bench.progress)
    return {each.name: summary(taken) | {"batch": batch[each]} for each, taken in samples.items()}, faults


def warm_up(helper, series, keys):
    """Looks all keys up. Returns the approximate nanoseconds of a lookup at the end of it."""
    count = count_for(helper, series, TRIAL_NS, "warm")
    ns = int(helper.ask(f"warm {series} {count}")[0]) / count
    step = -(-keys // WARM_UP_STEPS)
    deadline = time.monotonic() + WARM_UP_S
    for _ in range(WARM_UP_STEPS):
        if ns >= COLD_DOES_NOT_MATTER_NS or time.monotonic() > deadline:
            break
        ns = int(helper.ask(f"warm {series} {step}")[0]) / step
    return ns


def count_for(helper, series, target_ns, how="time"):
    """The number of lookups that take about that long."""
    count = 1
    while True:
        ns = max(1, int(helper.ask(f"{how} {series} {count}")[0]))
        if ns >= target_ns / 4:
            return max(1, int(count * target_ns / ns))
        count *= 4


def fault_of(keys, series, contender, helper, most):
    """The fault in the answers to the first keys, if any."""
    count = min(most, len(keys.answers[series]))
    found, checksum = map(int, helper.ask(f"check {series} {count}"))
    if checksum == keys.checksum(series, count, contender.members):
        return None
    return f"{found} of {count} found, and the answers are not those of the text"
