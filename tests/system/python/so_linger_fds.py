#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections to a socket that begin a frame, each with a descriptor that blocks in close() for an hour. The descriptor
is a socket with SO_LINGER and unread data.

usage: so_linger_fds.py SOCKET COUNT [HELD]

Prints a line when they are there, and ends with standard input. With HELD only so many stay: they come and go one after
the other.
"""

import resource
import select
import socket
import struct
import sys
import time


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
    count = int(sys.argv[2])
    held = int(sys.argv[3]) if len(sys.argv) > 3 else count
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    unread, kept = [], []
    for number in range(count):
        if select.select([sys.stdin], [], [], 0)[0]:
            return
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        sent = lingering(listener)
        unread.append(listener.accept()[0])
        try:
            socket.send_fds(connection, [b"R\0\0\0"], [sent.fileno()])
        except OSError:
            # The server closed the connection at once, or the kernel refused it because of the server's limits. This
            # end closes it without waiting.
            sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        sent.close()
        kept.append(connection)
        if len(kept) > held:
            kept.pop(0).close()
        if number == min(2 * held, count - 1):
            print("there", flush=True)
        # The server accepts each lasting connection before the next one comes.
        time.sleep(0.002 if held == count else 0.0005)
    sys.stdin.read()


main()
