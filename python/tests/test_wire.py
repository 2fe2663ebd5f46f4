# SPDX-License-Identifier: MIT OR Apache-2.0
"""The bytes of docs/internals/exec-protocol.md, and the handling of daemons that send others."""

import socket
import struct
import threading

import pytest

import roster_exec
from roster_exec import run_command, wire


def test_a_request_has_the_bytes_of_the_page():
    body = b"RXQ1" + struct.pack("<III", 2, 1, 3) + b"bob"
    body += b"".join(struct.pack("<I", len(text)) + text for text in (b"ls", b"", b"A=1"))
    assert wire.request(b"bob", [b"ls", b""], [b"A=1"]) == b"R\0\0\0" + struct.pack("<I", len(body)) + body
    assert wire.signal(15) == b"K\0\0\0\4\0\0\0\x0f\0\0\0"


def test_what_is_no_request_is_not_sent():
    for words, variables in (([], []), ([b"a\0"], []), ([b"a"], [b"A=\0"])):
        with pytest.raises(ValueError):
            wire.request(b"", words, variables)
    for words in ([b"x" * wire.REQUEST_BYTES_MAX], [b""] * (wire.STRINGS_MAX + 1)):
        with pytest.raises(OSError, match="too long"):
            wire.request(b"", words, [])


def frame(kind, body):
    return kind + b"\0\0\0" + struct.pack("<I", len(body)) + body


def test_an_answer_is_whole_or_waited_for():
    for bytes_, answer in (
        (frame(b"S", struct.pack("<I", 7)), wire.Started(7)),
        (frame(b"P", struct.pack("<I", 19)), wire.Stopped(19)),
        (frame(b"E", struct.pack("<II", 1, 9)), wire.Ended(1, 9)),
        (frame(b"D", struct.pack("<I", 2) + b"no \xff"), wire.Denied(2, "no \ufffd")),
    ):
        for end in range(len(bytes_)):
            assert wire.answer(bytes_[:end]) is None
        assert wire.answer(bytes_ + b"more") == (answer, len(bytes_))


NO_ANSWERS = [
    (frame(b"X", b""), "RST-7095"),
    (b"S\1\0\0\4\0\0\0\0\0\0\0", "RST-7095"),
    (b"E\0\0\0\xff\xff\xff\xff", "RST-7095"),
    (frame(b"S", b""), "RST-7095"),
    (frame(b"E", b"\0" * 4), "RST-7095"),
    (frame(b"D", b"\0"), "RST-7095"),
    (frame(b"S", b"\0" * 4) + frame(b"E", struct.pack("<II", 3, 0)), "RST-7095"),
    (frame(b"S", b"\0" * 4) + b"noise, and more of it", "RST-7095"),
    (frame(b"S", b"\0" * 4), "RST-7094"),
    (b"", "RST-7093"),
]


@pytest.mark.parametrize("said, code", NO_ANSWERS, ids=repr)
def test_what_is_no_answer_is_a_failure(tmp_path, said, code):
    path = str(tmp_path / "impostor")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            with listener.accept()[0] as client:
                client.recv(1 << 20)
                client.sendall(said)

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(roster_exec.Failed, match=code):
            roster_exec.run("true", socket=path, env={})
        server.join()


def test_a_daemon_without_a_place_is_asked_again_for_a_while(tmp_path, monkeypatch):
    path = str(tmp_path / "busy")
    busy = frame(b"D", struct.pack("<I", 4) + b"try again")
    ended = frame(b"S", struct.pack("<I", 7)) + frame(b"E", struct.pack("<II", 0, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            for said in (busy, busy, ended, busy):
                with listener.accept()[0] as client:
                    client.recv(1 << 20)
                    client.sendall(said)

        server = threading.Thread(target=serve)
        server.start()
        assert roster_exec.run("true", socket=path, env={}).returncode == 3
        monkeypatch.setattr(run_command, "BUSY_TIME_S", 0)
        with pytest.raises(roster_exec.Busy, match="try again"):
            roster_exec.run("true", socket=path, env={})
        server.join()


def test_a_daemon_that_says_nothing_is_not_waited_for_beyond_the_timeout(tmp_path):
    path = str(tmp_path / "silent")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with pytest.raises(roster_exec.TimeoutExpired):
            roster_exec.run("true", socket=path, env={}, timeout=0.2)
