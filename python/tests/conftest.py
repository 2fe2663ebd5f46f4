# SPDX-License-Identifier: MIT OR Apache-2.0
"""A separate daemon for each module, with a policy that allows root to run the commands of the tests.

ROSTER_ROOTWRAP_DAEMON is the executable to start.
"""

import contextlib
import glob
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "src"))

POLICY = """
[[rule]]
name = "scripts"
users = ["root"]
command = "/usr/bin/sh"
args = ["-c"]
any_args = true
keep_env = ["KEPT_*"]

[[rule]]
name = "as-nobody"
users = ["root"]
command = "/usr/bin/sh"
args = ["-c"]
any_args = true
run_as = "nobody"

[[rule]]
name = "cat"
users = ["root"]
command = "/usr/bin/cat"

[[rule]]
name = "true"
users = ["root"]
command = "/usr/bin/true"

[[rule]]
name = "short"
users = ["root"]
command = "/usr/bin/sleep"
args = [".*"]
timeout = "300ms"

[[rule]]
name = "absent"
users = ["root"]
command = "/no/such/executable"

[[rule]]
name = "unfit"
users = ["root"]
command = "{folder}/unfit"
"""


class Daemon:
    def __init__(self, folder):
        self.socket = str(folder / "exec")
        self.policy = folder / "exec.toml"
        unfit = folder / "unfit"
        unfit.write_text("#!/bin/sh\n")
        # Others could change it.
        unfit.chmod(0o777)
        self.policy.write_text(POLICY.format(folder=folder))
        self.policy.chmod(0o600)
        self.start()

    def start(self):
        program = os.environ["ROSTER_ROOTWRAP_DAEMON"]
        command = [program, "--native", "--policy", str(self.policy), "--socket", self.socket]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with socket.socket(socket.AF_UNIX) as client:
            eventually(lambda: self.process.poll() is not None or client.connect_ex(self.socket) == 0, "it listens")
        assert self.process.poll() is None, "no daemon"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("daemon")
    folder.chmod(0o755)
    running = Daemon(folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def run(daemon):
    import roster_exec

    def run(*args, **named):
        return roster_exec.run(*args, socket=daemon.socket, **named)

    return run


def eventually(holds, what):
    """Waits for at least 60 s before it fails."""
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError(f"not within 60 s: {what}")


def meets(folder, count, number):
    """A script that succeeds when so many of them run at the same time, and fails otherwise."""
    return (
        f"touch {folder}/{number}; looks=0; until [ $(ls {folder} | wc -l) -ge {count} ]; do "
        f"looks=$((looks + 1)); [ $looks -lt 1200 ] || exit 1; sleep 0.05; done"
    )


def running(command):
    """The processes with command lines that begin so."""
    for process in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(process, "rb") as words:
            if words.read().replace(b"\0", b" ").startswith(command.encode()):
                yield int(process.split("/")[2])


def is_running(command):
    return any(True for _ in running(command))
