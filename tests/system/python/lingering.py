#!/usr/bin/env python3
"""Connections to a socket that begin a frame, each with a descriptor whose close() would wait for an hour: a
socket with SO_LINGER and data that nobody reads.

usage: lingering.py SOCKET COUNT

Prints a line when they are there, and ends with standard input.
"""

import resource
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
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    kept = []
    for _ in range(int(sys.argv[2])):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(sys.argv[1])
        sent = lingering(listener)
        try:
            socket.send_fds(connection, [b"R\0\0\0"], [sent.fileno()])
            # Taken, before the next one comes.
            time.sleep(0.002)
        except OSError:
            # Turned away at once, or refused by the kernel for who serves: it is ours to close without waiting.
            sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        sent.close()
        kept.append(connection)
    print("connected", flush=True)
    sys.stdin.read()


main()
