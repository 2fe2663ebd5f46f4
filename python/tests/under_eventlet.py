"""The client under eventlet, as services of OpenStack have it. Only for a Python that has eventlet, so it is named to
pytest where it is to run.
"""

import os
import subprocess
import sys

SOURCES = os.path.join(os.path.dirname(__file__), "..", "src")
SCRIPT = """
import eventlet

eventlet.monkey_patch()
import sys
import time

sys.path.insert(0, sys.argv[1])
import roster_exec
from roster_exec.rootwrap import Client

client = Client(socket=sys.argv[2])
begin = time.monotonic()
green = [eventlet.spawn(client.execute, ["sh", "-c", f"sleep 1; echo {number}"]) for number in range(10)]
assert [thread.wait() for thread in green] == [[0, f"{number}\\n", ""] for number in range(10)]
assert time.monotonic() - begin < 8, "one does not wait for the other"

data = b"x" * 5_000_000
assert client.execute(["cat"], data) == [0, data.decode(), ""]
assert roster_exec.run(["true"], socket=sys.argv[2], env={"A": "x" * 1_000_000}).returncode == 0
begin = time.monotonic()
for limit in ({"timeout": 0.3}, {}):
    try:
        with eventlet.Timeout(0.6):
            roster_exec.run(["sh", "-c", "sleep 60"], socket=sys.argv[2], **limit)
    except (roster_exec.TimeoutExpired, eventlet.Timeout):
        continue
    raise AssertionError("it was waited for")
assert time.monotonic() - begin < 30
assert client.execute(["sh", "-c", "echo ok"]) == [0, "ok\\n", ""]
"""


def test_green_threads_do_not_wait_for_each_other(daemon):
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, SOURCES, daemon.socket], check=True, timeout=120)
