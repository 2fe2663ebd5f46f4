# SPDX-License-Identifier: MIT OR Apache-2.0
"""Many threads that do the same without a pause."""

import threading
import time


def crowd(count, seconds, call, prepare=lambda: None):
    """The nanoseconds of each call, as a list for each thread, and those of all of it. `prepare` is each thread's, before
    anything is timed. An exception of any of them is raised here."""
    samples, wrong = [[] for _ in range(count)], []
    ready, until = threading.Barrier(count + 1), 0

    def work(mine):
        try:
            prepare()
            ready.wait()
            ready.wait()
            while time.monotonic_ns() < until:
                begin = time.monotonic_ns()
                call()
                mine.append(time.monotonic_ns() - begin)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            wrong.append(error)
            ready.abort()

    workers = [threading.Thread(target=work, args=(mine,)) for mine in samples]
    for worker in workers:
        worker.start()
    begin = time.monotonic_ns()
    try:
        ready.wait()
        begin = time.monotonic_ns()
        until = begin + int(seconds * 1e9)
        ready.wait()
    except threading.BrokenBarrierError:
        pass
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]
    return samples, time.monotonic_ns() - begin
