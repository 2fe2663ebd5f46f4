#!/usr/bin/env python3
"""Clients that connect to sockets and say nothing, until standard input ends: COUNT to each. One whom
the queue has no room for, or who is thrown out, comes again.

usage: silent.py COUNT SOCKET…

Prints how many each socket has after the first second.
"""

import resource
import select
import socket
import sys
import time


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count, paths = int(sys.argv[1]), sys.argv[2:]
    clients = {path: [] for path in paths}
    start, told = time.monotonic(), False
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        for path, held in clients.items():
            thrown_out = select.poll()
            for client in held:
                thrown_out.register(client, select.POLLRDHUP)
            gone = {fd for fd, _ in thrown_out.poll(0)}
            held[:] = [client for client in held if client.fileno() not in gone or client.close()]
            while len(held) < count:
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)
                if client.connect_ex(path) != 0:
                    client.close()
                    break
                held.append(client)
        if not told and time.monotonic() - start > 1:
            told = True
            print({path: len(held) for path, held in clients.items()}, "connected", flush=True)


main()
