# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client under eventlet, as in services of OpenStack. Only for a Python that has eventlet, so pytest gets it by
name there.
"""

import os
import subprocess
import sys

from conftest import meets

SOURCES = os.path.join(os.path.dirname(__file__), "..", "src")
SCRIPT = """
import eventlet

eventlet.monkey_patch()
import sys

sys.path.insert(0, sys.argv[1])
import roster_exec
from roster_exec.rootwrap import Client

client = Client(socket=sys.argv[2])
# Each ends when all run: one does not wait for the other.
green = [eventlet.spawn(client.execute, ["sh", "-c", script]) for script in sys.argv[3:]]
assert [thread.wait() for thread in green] == [[0, "", ""]] * len(green)

data = b"x" * 5_000_000
assert client.execute(["cat"], data) == [0, data.decode(), ""]
assert roster_exec.run(["true"], socket=sys.argv[2], env={"A": "x" * 1_000_000}).returncode == 0
for limit in ({"timeout": 0.3}, {}):
    try:
        with eventlet.Timeout(0.6):
            roster_exec.run(["sh", "-c", "sleep infinity"], socket=sys.argv[2], **limit)
    except (roster_exec.TimeoutExpired, eventlet.Timeout):
        continue
    raise AssertionError("it was waited for")
assert client.execute(["sh", "-c", "echo ok"]) == [0, "ok\\n", ""]
"""


def test_eventlet_green_threads_run_commands_side_by_side(daemon, tmp_path):
    scripts = [meets(tmp_path, 10, number) for number in range(10)]
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, SOURCES, daemon.socket, *scripts]
    subprocess.run(command, check=True, timeout=120)
