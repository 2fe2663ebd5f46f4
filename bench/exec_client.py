# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster_exec` beside `subprocess` of the same Python. Run by any Python that has both; see harness/parts/exec.py.

usage: exec_client.py crowd|large|attack SETTINGS

SETTINGS is JSON, and so is the output: nanoseconds.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python/src"))
import roster_exec  # noqa: E402
from harness.parallel import crowd as threads  # noqa: E402
from harness.measure import rounds  # noqa: E402
from roster_exec.rootwrap import Client  # noqa: E402

UNLIMITED = float("inf")
NAMES = ("roster_exec.run", "roster_exec.rootwrap.Client", "subprocess.run")


def crowd(socket, count, seconds, repetitions):
    """Many threads that run `true` without a pause."""
    client = Client(socket=socket)

    def call(name):
        if name == "subprocess.run":
            return subprocess.run(["/usr/bin/true"]).returncode
        if name == "roster_exec.run":
            return roster_exec.run(["true"], socket=socket).returncode
        return client.execute(["true"])[0]

    def well(name):
        if call(name) != 0:
            raise SystemExit(f"{name}: true failed")

    def once(name):
        samples, wall = threads(count, seconds, lambda: well(name), prepare=lambda: well(name))
        return {"ns": sorted(sample for mine in samples for sample in mine), "wall_ns": wall}

    return rounds(NAMES, repetitions, UNLIMITED, once)


def large(socket, megabytes, repetitions):
    """Much from a file through a pipe into a command, out of one, and from this process through one: with us and
    without."""
    runs = {"roster_exec.run": lambda *args, **named: roster_exec.run(*args, socket=socket, **named),
            "subprocess.run": subprocess.run}  # fmt: skip
    data = os.urandom(1 << 20) * megabytes

    def descriptors(run):
        """As in a shell: a program writes into a pipe that is the command's standard input."""
        source = subprocess.Popen(["/usr/bin/head", "-c", str(len(data)), "/dev/zero"], stdout=subprocess.PIPE)
        counted = run(["/usr/bin/wc", "-c"], stdin=source.stdout, stdout=subprocess.PIPE)
        source.stdout.close()
        source.wait()
        return int(counted.stdout) == len(data)

    def through(run):
        """In and out of this process."""
        return run(["/usr/bin/cat"], input=data, stdout=subprocess.PIPE).stdout == data

    found = {}
    for way in (descriptors, through):

        def once(name, way=way):
            begin = time.monotonic_ns()
            if not way(runs[name]):
                raise SystemExit(f"{name}: not what went in")
            return time.monotonic_ns() - begin

        found[way.__name__] = rounds(list(runs), repetitions, UNLIMITED, once)
    return found


def attack(client, socket, script, folder, seconds, repetitions, users, attackers, connections):
    """Calls of users, by name, in turn alone and while attackers hold connections open that cannot be closed."""
    runs = {"alone": [], "attacked": []}
    for _ in range(repetitions):
        runs["alone"].append(calls_of(users, [client, "-s", socket, "true"], seconds))
        begun = []
        try:
            for uid in attackers:
                begun.append(begin_attack([sys.executable, script, folder, socket], uid, connections))
            runs["attacked"].append(calls_of(users, [client, "-s", socket, "true"], seconds))
        finally:
            for attacker in begun:
                attacker.stdin.close()
                attacker.wait()
    return runs


def begin_attack(command, uid, connections):
    folder = Path(command[2]) / str(uid)
    folder.mkdir(exist_ok=True)
    command = [*command[:2], folder, command[3], str(uid), str(connections)]
    attacker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if attacker.stdout.readline() not in (b"connected\n", b"refused\n"):
        raise SystemExit(f"attack of uid {uid}: it did not begin")
    return attacker


def calls_of(users, command, seconds):
    """Each user calls without a pause, in a separate process. Times in ns by user."""
    readers = {}
    for name, uid in users.items():
        reader, writer = os.pipe()
        if os.fork() == 0:
            status = 1
            try:
                os.close(reader)
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                with open(writer, "w") as out:
                    json.dump(calls(command, seconds), out)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        readers[name] = reader
    found = {}
    for name, reader in readers.items():
        with open(reader) as told:
            found[name] = json.loads(told.read() or "null")
    if any(os.waitstatus_to_exitcode(os.wait()[1]) for _ in users):
        raise SystemExit("a user's call failed")
    return found


def calls(command, seconds):
    end, samples = time.monotonic() + seconds, []
    while time.monotonic() < end:
        begin = time.monotonic_ns()
        pid = os.posix_spawn(command[0], command, dict(os.environ))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        samples.append(time.monotonic_ns() - begin)
        if status != 0:
            raise SystemExit(f"roster-exec ended with {status}")
    return samples


if __name__ == "__main__":
    part = {"attack": attack, "crowd": crowd, "large": large}[sys.argv[1]]
    json.dump(part(**json.loads(sys.argv[2])), sys.stdout)
