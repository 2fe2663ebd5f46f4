# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client in the place of that of oslo.rootwrap."""

import os
import signal
import threading

import pytest
from conftest import meets

from roster_exec.rootwrap import Client


@pytest.fixture
def client(daemon):
    return Client(["sudo", "rootwrap-daemon", "/etc/rootwrap.conf"], socket=daemon.socket)


def test_results_are_those_of_the_original(client):
    everything = bytes(range(256)) * 3
    text = 'e\u0301\u00e9 \U0001f4a9 "\\ \n\r\t\x00\x7f \udcff\udc80'
    for command, stdin, result in [
        (["sh", "-c", "echo out; echo err >&2"], None, [0, "out\n", "err\n"]),
        (["cat"], None, [0, "", ""]),
        (["cat"], "", [0, "", ""]),
        (["cat"], everything, [0, os.fsdecode(everything), ""]),
        (["cat"], text, [0, text, ""]),
        (["sh", "-c", "exit 7"], b"x" * 1000000, [7, "", ""]),
        (["sh", "-c", "kill -9 $$"], None, [-9, "", ""]),
        (["/no/such/executable"], None, [96, "", ""]),
        (["unheard-of"], "x", [99, "", ""]),
        ([], None, [99, "", ""]),
    ]:
        assert client.execute(command, stdin=stdin) == result, command


def test_rootwrap_threads_run_commands_side_by_side(client, tmp_path):
    ended = []

    def execute(number):
        ended.append(client.execute(["sh", "-c", meets(tmp_path, 16, number)]))

    threads = [threading.Thread(target=execute, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [[0, "", ""]] * 16


def test_rootwrap_kept_pipe_does_not_delay_the_reply(client):
    status, pid, errors = client.execute(["sh", "-c", "sleep infinity & echo $!"])
    os.kill(int(pid), signal.SIGKILL)
    assert (status, errors) == (0, "")
    assert client.execute(["sh", "-c", "(sleep 0.1; echo late) & echo soon"]) == [0, "soon\nlate\n", ""]
