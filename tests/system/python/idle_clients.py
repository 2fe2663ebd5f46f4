#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Clients that connect to sockets and send nothing, until standard input ends: COUNT to each. A client that finds the
queue full or is disconnected connects again.

usage: idle_clients.py COUNT SOCKET…

Prints how many each socket has after it has filled them up 50 times.
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
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        time.sleep(0.02)
        rounds += 1
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
        if rounds == 50:
            print({path: len(held) for path, held in clients.items()}, "connected", flush=True)


main()
