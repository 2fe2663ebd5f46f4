#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections to a socket that begin a frame, each with a file of a file system (FUSE). The server of the file system
never answers the request to close a file. A process that closes a descriptor of it waits, and no signal ends that.

usage: fuse_fds.py DIRECTORY SOCKET UID

Serves the file system, mounted at DIRECTORY, as root, and connects as UID, once a second. Prints a line when the first
connection is there. With standard input its server ends, and with that all waits.
"""

import ctypes
import os
import select
import socket
import stat
import struct
import sys
import time

IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
LOOKUP, GETATTR, OPEN, FLUSH, INIT, RELEASE, FORGET = 1, 3, 14, 25, 26, 18, 2
CONNECTIONS_MAX = 60


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o666
    return struct.pack("<QQQQQQIIIIIIIIII", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(request):
    """Returns the reply to the kernel, or None if there is none."""
    _, code, unique, node, *_ = IN_HEADER.unpack_from(request)
    if code in (FLUSH, FORGET):
        return None
    answers = {
        INIT: lambda: struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0),
        LOOKUP: lambda: struct.pack("<QQQQII", 2, 0, 60, 60, 0, 0) + attributes(2),
        GETATTR: lambda: struct.pack("<QII", 60, 0, 0) + attributes(node),
        OPEN: lambda: struct.pack("<QII", 0, 0, 0),
        RELEASE: lambda: b"",
    }
    if code not in answers:
        return OUT_HEADER.pack(OUT_HEADER.size, -38, unique)
    body = answers[code]()
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique) + body


def serve(device):
    while not select.select([sys.stdin], [], [], 0)[0]:
        if select.select([device, sys.stdin], [], [])[0] == [device]:
            said = answer(os.read(device, 1 << 17))
            if said is not None:
                os.write(device, said)


def connect(path, socket_path, uid):
    os.setgid(uid)
    os.setuid(uid)
    kept = []
    while True:
        if len(kept) < CONNECTIONS_MAX:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(socket_path)
            file = os.open(path, os.O_RDWR)
            socket.send_fds(connection, [b"R\0\0\0"], [file])
            kept.append((connection, file))
            if len(kept) == 1:
                print("connected", flush=True)
        # With its server it ends: see below.
        time.sleep(1)


def main():
    folder, socket_path, uid = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", folder.encode(), b"fuse", 6, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    process = os.fork()
    if process == 0:
        os.close(device)
        connect(f"{folder}/silent", socket_path, int(uid))
    try:
        serve(device)
    finally:
        os.kill(process, 9)
        # The kernel sends no more requests, so no process waits.
        os.close(device)
        os.waitpid(process, 0)


main()
