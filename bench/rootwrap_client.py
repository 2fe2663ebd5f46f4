# SPDX-License-Identifier: MIT OR Apache-2.0
"""The unchanged client of oslo.rootwrap in front of several daemons, timed from one Python: the view of a caller of
`Client.execute`. Run by the Python that has oslo.rootwrap; see harness/parts/rootwrap.py.

usage: rootwrap_client.py calls|threads|large SETTINGS

SETTINGS is JSON, and so is the output: nanoseconds.
"""

import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from harness.parallel import crowd  # noqa: E402
from harness.measure import rounds  # noqa: E402
from oslo_rootwrap import client as oslo_client  # noqa: E402
from oslo_rootwrap import jsonrpc  # noqa: E402

UNLIMITED = float("inf")


class Timed:
    """A client, and the time for which each of its calls had the lock that all threads of a client share. From there on
    the time is the daemon's time."""

    def __init__(self, command):
        self.client = oslo_client.Client(command)
        self.inner = []
        run = self.client._run_one_command

        def timed(*arguments):
            begin = time.monotonic_ns()
            try:
                return run(*arguments)
            finally:
                self.inner.append(time.monotonic_ns() - begin)

        self.client._run_one_command = timed
        self.execute = self.client.execute
        expect(self.execute(["true"]), "")

    @property
    def pid(self):
        """The pid of the daemon itself, among the processes of its command."""
        return self.client._process.pid

    def close(self):
        self.client._finalize()
        self.client._process.wait()


def expect(answer, stdout):
    if list(answer) != [0, stdout, ""]:
        raise SystemExit(f"answered {str(answer)[:200]}")


def calls(daemons, programs, repetitions, seed=0):
    """One call of each in turn: daemons by the client, programs by subprocess.run."""
    clients = {name: Timed(command) for name, command in daemons.items()}

    def once(name):
        begin = time.monotonic_ns()
        if name in clients:
            expect(clients[name].execute(["true"]), "")
        else:
            subprocess.run(programs[name], check=True)
        return time.monotonic_ns() - begin

    taken = rounds([*clients, *programs], repetitions, UNLIMITED, once, seed=seed)
    for client in clients.values():
        client.close()
    return taken


def threads(daemons, count, seconds, repetitions):
    """Many threads on one client, without a pause between calls."""
    clients = {name: Timed(command) for name, command in daemons.items()}

    def once(name):
        client = clients[name]
        client.inner.clear()
        outer, wall = crowd(
            count,
            seconds,
            lambda: expect(client.execute(["true"]), ""),
            # A connection of the thread's own.
            prepare=lambda: client.client._proxy.run_one_command(["true"]),
        )
        return {
            "outer_ns": sorted(sample for samples in outer for sample in samples),
            "inner_ns": sorted(client.inner),
            "by_thread": sorted(map(len, outer)),
            "wall_ns": wall,
        }

    taken = rounds(list(clients), repetitions, UNLIMITED, once)
    for client in clients.values():
        client.close()
    return taken


def large(daemons, megabytes, repetitions):
    """Much data through a command's standard input, and out of it. `encoding` is the client's own work on the data
    before the first byte is sent."""
    data = os.urandom(1 << 20) * megabytes
    size = str(len(data))
    found = {}
    for name, command in daemons.items():
        client = Timed(command)
        series = {"encoding_ns": [], "stdin_ns": [], "stdout_ns": []}
        for _ in range(repetitions):
            begin = time.monotonic_ns()
            jsonrpc.JsonConnection.dumps(("1", "run_one_command", (["wc", "-c"], data), {}))
            encoded = time.monotonic_ns()
            expect(client.execute(["wc", "-c"], data), size + "\n")
            done = time.monotonic_ns()
            series["encoding_ns"].append(encoded - begin)
            series["stdin_ns"].append(done - encoded)
        for _ in range(repetitions):
            begin = time.monotonic_ns()
            code, out, err = client.execute(["sh", "-c", f"yes 0123456789abcde | head -c {size}"])
            series["stdout_ns"].append(time.monotonic_ns() - begin)
            if (code, len(out), err) != (0, len(data), ""):
                raise SystemExit(f"{name}: {len(out)} bytes came out, {code}, {err[:200]}")
            del out
        found[name] = series | {"peak_bytes": peak_bytes(client.pid)}
        client.close()
    return found


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    part = {"calls": calls, "threads": threads, "large": large}[sys.argv[1]]
    json.dump(part(**json.loads(sys.argv[2])), sys.stdout)
