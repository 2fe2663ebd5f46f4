#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections to a socket, each with a file that hangs when its last descriptor is closed. No signal ends the wait.

usage: hanging_files.py DIRECTORY SOCKET UID COUNT

Run as root. Mounts a file system (FUSE) for UID at DIRECTORY, in a private mount namespace, and serves it until
standard input ends. With the server ends each wait. The file has dirty pages and the server answers no write: the
kernel waits for its writeback when a descriptor is released. Each descriptor travels within a socket pair within the
connection, so that this script closes none of them last.

Connects COUNT times as UID, then goes on, a connection every 50 ms. Prints "connected" after COUNT connections, or
"refused" when connect(2) says EACCES.
"""

import ctypes
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time

IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, WRITE, RELEASE, FLUSH, INIT, BATCH_FORGET = 1, 2, 3, 4, 14, 16, 18, 25, 26, 42
WRITEBACK_CACHE = 1 << 16
CLONE_NEWNS, MS_REC_PRIVATE, MS_NOSUID_NODEV = 0x20000, 0x44000, 6
LIBC = ctypes.CDLL(None, use_errno=True)


def attributes(node, uid):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o600
    return struct.pack("<QQQQQQIIIIIIIIII", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, uid, uid, 0, 4096, 0)


def answer(request, uid):
    """Bytes for the kernel; None if the request has no reply, or never gets one."""
    _, code, unique, node, *_ = IN_HEADER.unpack_from(request)
    if code in (FORGET, BATCH_FORGET, WRITE):
        return None
    answers = {
        INIT: lambda: struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, WRITEBACK_CACHE, 0, 0, 4096, 1, 0, 0, 0),
        LOOKUP: lambda: struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2, uid),
        GETATTR: lambda: struct.pack("<QII", 3600, 0, 0) + attributes(node, uid),
        SETATTR: lambda: struct.pack("<QII", 3600, 0, 0) + attributes(node, uid),
        OPEN: lambda: struct.pack("<QII", 0, 0, 0),
        RELEASE: lambda: b"",
        FLUSH: lambda: b"",
    }
    if code not in answers:
        return OUT_HEADER.pack(OUT_HEADER.size, -38, unique)
    body = answers[code]()
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique) + body


def serve(device, uid):
    while True:
        said = answer(os.read(device, 1 << 17), uid)
        if said is not None:
            os.write(device, said)


def mount(directory, device, uid):
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid}"
    for done in (
        LIBC.unshare(CLONE_NEWNS),
        LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None),
        LIBC.mount(b"hanging", directory.encode(), b"fuse", MS_NOSUID_NODEV, options.encode()),
    ):
        if done != 0:
            raise OSError(ctypes.get_errno(), "mount")


def packed(path):
    """One end of a socket pair that holds the only descriptor of an open file."""
    file = os.open(path, os.O_RDWR)
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"f"], [file])
    os.close(file)
    ours.close()
    return theirs


def connect(path, socket_path, count):
    packages = [packed(path) for _ in range(count)]
    # Dirty from here on.
    keeps = os.open(path, os.O_RDWR)
    os.write(keeps, bytes(4096))
    kept, said = [], False
    while True:
        connection = socket.socket(socket.AF_UNIX)
        state = "connected"
        try:
            connection.connect(socket_path)
            if packages:
                package = packages.pop()
                socket.send_fds(connection, [b"R\0\0\0"], [package.fileno()])
                package.close()
                kept.append(connection)
        except PermissionError:
            state = "refused"
        except OSError:
            # The daemon has closed it already.
            pass
        if not said and (state == "refused" or not packages):
            print(state, flush=True)
            said = True
        if said:
            time.sleep(0.05)


def main():
    directory, socket_path, uid, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    device = os.open("/dev/fuse", os.O_RDWR)
    mount(directory, device, uid)
    client = os.fork()
    if client == 0:
        os.close(device)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        connect(f"{directory}/file", socket_path, count)
    threading.Thread(target=serve, args=(device, uid), daemon=True).start()
    select.select([sys.stdin], [], [])
    os.kill(client, signal.SIGKILL)
    # With the last descriptor of the device its file system ends, and with that each wait.
    os._exit(0)


main()
