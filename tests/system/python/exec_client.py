#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends invalid and hostile requests to the socket of roster-exec, and prints the replies.

usage: exec_client.py SOCKET CASE [ARGUMENT]...

Written from docs/internals/exec-protocol.md. An answer is printed as its kind and numbers; "end" is the end of
the connection.
"""

import os
import socket
import struct
import sys
import time

NULL = os.open("/dev/null", os.O_RDWR)
ROOT = os.open("/", os.O_PATH | os.O_DIRECTORY)
FOUR = [NULL, NULL, NULL, ROOT]


def frame(kind, body):
    return struct.pack("<B3xI", ord(kind), len(body)) + body


def request(*words, variables=(), user=b"", count=None):
    strings = [word.encode() for word in (*words, *variables)]
    body = b"RXQ1" + struct.pack("<III", len(words) if count is None else count, len(variables), len(user)) + user
    return frame("R", body + b"".join(struct.pack("<I", len(string)) + string for string in strings))


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(sys.argv[1])
    return connection


def send(connection, data, fds=FOUR):
    sent = socket.send_fds(connection, [data], fds) if fds else 0
    connection.sendall(data[sent:])


def answer(connection):
    """One answer, or "end"."""
    head = b""
    try:
        while len(head) < 8:
            more = connection.recv(8 - len(head))
            if not more:
                return "end"
            head += more
        kind, length = struct.unpack("<B3xI", head)
        body = b""
        while len(body) < length:
            body += connection.recv(length - len(body))
    except ConnectionResetError:
        return "end"
    kind = chr(kind)
    if kind == "E":
        return "E %d %d" % struct.unpack("<II", body)
    return f"D {struct.unpack('<I', body[:4])[0]}" if kind == "D" else kind


def answers(data, fds=FOUR):
    connection = connect()
    try:
        send(connection, data, fds)
    except BrokenPipeError:
        pass
    told = []
    while not told or told[-1] in "SP":
        told.append(answer(connection))
    return " ".join(told)


def several():
    """Commands one after the other over one connection, with a signal that comes too late."""
    connection = connect()
    for code in (0, 7, 0):
        send(connection, request("sh", "-c", f"exit {code}"))
        print(answer(connection), answer(connection))
        connection.sendall(frame("K", struct.pack("<I", 15)))


def malformed():
    """Each malformed request ends the connection, even if the rest of it is right."""
    good = request("sh", "-c", "exit 0")
    cases = {
        "good": (good, FOUR),
        "three descriptors": (good, FOUR[:3]),
        "five descriptors": (good, [*FOUR, NULL]),
        "two hundred": (good, FOUR * 50),
        "none": (good, []),
        "magic": (good.replace(b"RXQ1", b"RXQ2"), FOUR),
        "kind": (b"X" + good[1:], FOUR),
        "a signal": (frame("K", b"\x09\0\0\0"), FOUR),
        "padding": (good[:1] + b"\1" + good[2:], FOUR),
        "4 GiB": (b"R\0\0\0\xff\xff\xff\xff", FOUR),
        "no words": (request(), FOUR),
        "4 billion words": (request("sh", count=0xFFFFFFFF), FOUR),
        "fewer words": (request("sh", count=2), FOUR),
        "a NUL": (request("sh", "-c", "exit\x00 0"), FOUR),
        "no =": (request("sh", variables=["A"]), FOUR),
        "rest": (frame("R", good[8:] + b"x"), FOUR),
        "text": (b"GET / HTTP/1.0\r\n\r\n" + bytes(100), FOUR),
    }
    for name, (data, fds) in cases.items():
        print(f"{name}: {answers(data, fds)}")


def directories():
    """Runs in each directory of the command line, opened with O_PATH."""
    for path in sys.argv[3:]:
        directory = os.open(path, os.O_PATH | os.O_DIRECTORY)
        print(f"{path}: {answers(request('sh', '-c', 'exit 0'), [NULL, NULL, NULL, directory])}")


def own_directory():
    """Runs a command of the caller's own user, in a directory that was opened with O_PATH."""
    directory = os.open(sys.argv[3], os.O_PATH | os.O_DIRECTORY)
    print(answers(request("cat", "secret", user=b"bob"), [NULL, NULL, NULL, directory]))


def long_user():
    """Requests a command as a user with a name of 1 MiB."""
    print(answers(request("ls", user=b"x" * (1 << 20))))


def late_signals():
    """Signals for no command, and a request behind them."""
    for count in (50, 1000):
        print(answers(frame("K", struct.pack("<I", 15)) * count + request("sh", "-c", "exit 0")))


def slow():
    """A byte each half second is too slow: the daemon ends the connection before it has the request."""
    connection = connect()
    data = request("sh", "-c", "exit 0")
    send(connection, data[:1])
    try:
        for byte in data[1:]:
            time.sleep(0.5)
            connection.sendall(bytes([byte]))
    except (BrokenPipeError, ConnectionResetError):
        pass
    print(answer(connection))


def inherited():
    """Inherits a connection from a process that has ended: the peer's credentials are of the process that connected."""
    connection = connect()
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.01)
    send(connection, request("sh", "-c", "exit 0"))
    print(answer(connection), flush=True)


def given_up():
    """Connects, then gives up its user: the connection has the credentials of the time of connect."""
    connection, data = connect(), request("sh", "-c", "exit 0")
    send(connection, data)
    told = [answer(connection), answer(connection)]
    os.seteuid(65534)
    try:
        send(connection, data)
    except BrokenPipeError:
        pass  # closed with the first of its bytes
    told += ["then", answer(connection) + ","]
    os.seteuid(0)
    print(*told, "as root again", answers(data))


def out_of_turn():
    """A request while a command runs ends that command."""
    connection = connect()
    send(connection, request("sh", "-c", "sleep 600"))
    print(answer(connection))
    send(connection, request("sh", "-c", "exit 0"))
    told = answer(connection)
    print(told)


def large():
    """A request of nearly 4 MiB, and many of them at once: the daemon holds no more than it may."""
    variables = ["A=" + "x" * 100_000] * 40
    data = request("sh", "-c", "exit 0", variables=variables)
    print(len(data) > 3 << 20, answers(data))
    # The daemon aborts a request 5 s after its first byte.
    for _ in range(20):
        held, refused = [begun(data) for _ in range(4)], [begun(data) for _ in range(8)]
        told = [answer(connection) for connection in refused]
        waiting = sum(waits(connection) for connection in held)
        for connection in held + refused:
            connection.close()
        if waiting == len(held):
            break
    print(waiting, told.count("D 4"))


def begun(data):
    """A connection with the first 3 MiB of a request, as far as the daemon reads them."""
    connection = connect()
    try:
        send(connection, data[: 3 << 20])
    except (BrokenPipeError, ConnectionResetError):
        pass
    return connection


def waits(connection):
    """Whether the daemon has neither answered nor ended the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


if __name__ == "__main__":
    globals()[sys.argv[2]]()
