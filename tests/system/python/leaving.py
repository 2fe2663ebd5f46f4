#!/usr/bin/env python3
"""Connections to a socket that begin a frame and end, one after the other, each with a descriptor whose last close()
waits for an hour: a socket with SO_LINGER and data that nobody reads.

usage: leaving.py SOCKET COUNT

Prints a line when the first have come and gone, and ends with standard input.
"""

import resource
import select
import socket
import struct
import sys
import time

HELD = 8


def lingering(listener):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.connect(listener.getsockname())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(65536))
    except BlockingIOError:
        return client


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    unread, held = [], []
    for number in range(int(sys.argv[2])):
        if select.select([sys.stdin], [], [], 0)[0]:
            return
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        sent = lingering(listener)
        unread.append(listener.accept()[0])
        try:
            socket.send_fds(connection, [b"R\0\0\0"], [sent.fileno()])
        except OSError:
            # Turned away at once: it is ours to close without waiting.
            sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        sent.close()
        held.append(connection)
        if len(held) > HELD:
            held.pop(0).close()
        if number == 2 * HELD:
            print("come and gone", flush=True)
        time.sleep(0.0005)
    sys.stdin.read()


main()
