# SPDX-License-Identifier: MIT OR Apache-2.0
"""Behaviour that only `roster_exec` has: access, errors, and connections."""

import os
import pty
import signal
import socket
import subprocess
import sys
import threading

import pytest
from conftest import Daemon, eventually, is_running

import roster_exec
from roster_exec import connection

SOURCES = os.path.join(os.path.dirname(__file__), "..", "src")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "command, error, like",
    [
        ("rm", roster_exec.Refused, PermissionError),
        (["cat", "/etc/shadow"], roster_exec.Refused, PermissionError),
        ("/no/such/executable", roster_exec.NotFound, FileNotFoundError),
        ("unfit", roster_exec.NotExecutable, PermissionError),
    ],
)
def test_what_does_not_run_is_told_as_subprocess_tells_it(run, command, error, like):
    with pytest.raises(error) as told:
        run(command)
    assert isinstance(told.value, like) and isinstance(told.value, roster_exec.ExecError)
    assert told.value.errno and told.value.strerror
    # The connection is usable as before.
    assert run("true").returncode == 0


def test_nobody_listening_is_told_with_what_to_do(tmp_path):
    with pytest.raises(roster_exec.NoDaemon, match="RST-7091") as told:
        roster_exec.run("true", socket=str(tmp_path / "none"))
    assert isinstance(told.value, ConnectionError)


def test_a_command_runs_as_whom_the_caller_asks_for(run):
    who = ["sh", "-c", "id -un"]
    assert run(who, capture_output=True, text=True).stdout == "root\n"
    assert run(who, capture_output=True, text=True, user="nobody").stdout == "nobody\n"
    with pytest.raises(roster_exec.Refused):
        run(who, user="daemon")
    # A missing name never means root.
    with pytest.raises(ValueError, match="empty"):
        run(who, user="")


def test_of_the_environment_only_that_comes_which_the_rule_keeps(run, monkeypatch):
    monkeypatch.setenv("KEPT_A", "1")
    monkeypatch.setenv("LOST", "1")
    script = ["sh", "-c", 'printf "%s %s %s" "$KEPT_A" "$KEPT_B" "$LOST"']
    assert run(script, capture_output=True).stdout == b"1  "
    assert run(script, capture_output=True, env={"KEPT_B": b"\xff", "LOST": "2"}).stdout == b" \xff "
    with pytest.raises(ValueError):
        run(script, env={"A=B": "x"})


def test_a_command_is_killed_with_all_that_it_started_when_its_time_is_over(run):
    mark = f"60{os.getpid()}.25"
    with pytest.raises(roster_exec.TimeoutExpired):
        run(["sh", "-c", f"sleep {mark} & sleep {mark}"], timeout=0.3)
    eventually(lambda: not is_running(f"sleep {mark}"), "nothing is left of it")
    assert run(["sleep", "infinity"]).returncode == roster_exec.TIME_OVER


def test_timeout_pipe_held_returns_output(run, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # `cat` leaves the group, keeps the pipe and waits for the gate.
    script = f"echo came; setsid cat {gate} & exec sleep infinity"
    for execute, shell in ((run, "sh"), (subprocess.run, "/usr/bin/sh")):
        with pytest.raises(subprocess.TimeoutExpired) as error:
            execute([shell, "-c", script], capture_output=True, timeout=1)
        assert error.value.output == b"came\n"
        assert is_running(f"cat {gate}")
        gate.write_bytes(b"")
        eventually(lambda: not is_running(f"cat {gate}"), "cat ends when the gate opens")


def test_an_interrupted_caller_leaves_no_command(daemon):
    mark = f"61{os.getpid()}.25"
    for script in (f"sleep {mark}", f"trap '' INT; sleep {mark}; sleep {mark}"):
        program = (
            f"import sys; sys.path.insert(0, {SOURCES!r}); import roster_exec\n"
            f"roster_exec.run(['sh', '-c', {script!r}], socket={daemon.socket!r}, capture_output=True)"
        )
        caller = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
        eventually(lambda: is_running(f"sleep {mark}"), "it runs")
        caller.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in caller.communicate(timeout=60)[1]
        assert caller.returncode == -signal.SIGINT
        eventually(lambda: not is_running(f"sleep {mark}"), "it was killed")


def test_threads_have_commands_of_their_own(run):
    wrong = []

    def work(number):
        for turn in range(10):
            text = f"{number} {turn} " + "x" * (number * 3000)
            if run(["cat"], input=text, capture_output=True, text=True).stdout != text:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_command_leaves_behind_reads_and_writes_on(run):
    data = b"x" * 3_000_000
    for who, shell in ((run, "sh"), (subprocess.run, "/usr/bin/sh")):
        ran = who([shell, "-c", "exec 3<&0; (sleep 0.2; wc -c <&3) &"], input=data, capture_output=True)
        assert (ran.returncode, ran.stdout) == (0, b"3000000\n")


def test_a_caller_without_streams_has_none_to_hand_on(daemon):
    program = (
        f"import os, sys; sys.path.insert(0, {SOURCES!r}); import roster_exec\n"
        "for number in (0, 1, 2): os.close(number)\n"
        f"ran = roster_exec.run(['sh', '-c', 'cat; exit 7'], socket={daemon.socket!r})\n"
        "os._exit(ran.returncode)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 7


def test_connections_are_kept_and_nothing_else_is(run, daemon):
    run("true")
    before = descriptors()
    for _ in range(20):
        run(["cat"], input=b"x", capture_output=True)
        with pytest.raises(roster_exec.Refused):
            run("rm", capture_output=True)
        with pytest.raises(roster_exec.TimeoutExpired):
            run(["sh", "-c", "sleep 60"], capture_output=True, timeout=0.01)
        with pytest.raises(FileNotFoundError):
            run("true", cwd="/no/such/folder", capture_output=True)
    assert descriptors() <= before + 1
    kept = connection.pool(daemon.socket)
    many = [kept.connect() for _ in range(connection.IDLE_MAX + 5)]
    for each in many:
        kept.give_back(each)
    assert len(kept._idle) == connection.IDLE_MAX
    kept.clear()


def test_a_child_after_fork_has_connections_of_its_own(run):
    run("true")
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            ran = run(["sh", "-c", f"echo {number}"], capture_output=True)
            os._exit(0 if ran.stdout == f"{number}\n".encode() else 1)
        children.append(child)
    for _ in range(20):
        assert run(["sh", "-c", "echo parent"], capture_output=True).stdout == b"parent\n"
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_who_becomes_another_user_keeps_nothing_of_the_former_one(run, daemon):
    run("true")
    kept = connection.pool(daemon.socket)
    assert kept._idle
    used = kept.take()
    os.seteuid(65534)
    try:
        # The rights of `nobody` may not even lead to the socket.
        with pytest.raises(PermissionError):
            run("true")
        assert not kept._idle
        kept.give_back(used)
        assert not kept._idle
    finally:
        os.seteuid(0)
    assert run("true").returncode == 0


def test_a_kept_connection_that_has_ended_is_made_anew(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restarted")
    folder.chmod(0o755)
    daemon = Daemon(folder)
    assert roster_exec.run("true", socket=daemon.socket).returncode == 0
    daemon.stop()
    daemon.start()
    assert roster_exec.run("true", socket=daemon.socket).returncode == 0

    # The error reports a daemon that goes away in the middle: the command may have run.
    killer = threading.Timer(0.5, daemon.kill)
    killer.start()
    with pytest.raises(roster_exec.Failed, match="RST-7094"):
        roster_exec.run(["sh", "-c", "sleep 5"], socket=daemon.socket)
    killer.join()
    with pytest.raises(roster_exec.NoDaemon):
        roster_exec.run("true", socket=daemon.socket)


def test_no_command_is_asked_for_twice(tmp_path):
    """A daemon that has read a request may have begun with it, with any reply."""
    asked = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "exec"))
        door.listen()

        def serve():
            connection = door.accept()[0]
            asked.append(connection.recv(1 << 16))
            # As of a command that has ended; then the client keeps the connection.
            connection.sendall(b"E\0\0\0\x08\0\0\0" + bytes(8))
            asked.append(connection.recv(1 << 16))
            connection.close()

        server = threading.Thread(target=serve)
        server.start()
        path = str(tmp_path / "exec")
        assert roster_exec.run("true", socket=path).returncode == 0
        with pytest.raises(roster_exec.Failed, match="RST-7093"):
            roster_exec.run("true", socket=path)
        server.join()
        # A second connection would wait here: the client has returned.
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()
    assert len(asked) == 2 and all(asked)


def test_a_command_that_stops_on_a_terminal_goes_on(run):
    ours, theirs = pty.openpty()
    try:
        ran = run(["sh", "-c", "kill -STOP $$; exit 5"], stdin=theirs, timeout=60)
        assert ran.returncode == 5
    finally:
        os.close(ours)
        os.close(theirs)
