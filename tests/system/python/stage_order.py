#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Starts the step between the daemon and a command with a socket that UID has made, and orders it to run a command.

usage: stage_order.py PROGRAM UID

Run as root. Prints the output of the command.
"""

import os
import socket
import struct
import subprocess
import sys


def words(*words):
    return struct.pack("<I", len(words)) + b"".join(struct.pack("<I", len(word)) + word for word in words)


def main():
    program, uid = sys.argv[1], int(sys.argv[2])
    os.seteuid(uid)
    ours, theirs = socket.socketpair()
    os.seteuid(0)
    subprocess.Popen(["roster-rootwrap: stage"], executable=program, stdin=theirs, stderr=subprocess.DEVNULL)
    theirs.close()
    # Credentials, limits, flags, and the command.
    order = struct.pack("<IIIIBB", 0, 0, 0, 0, 0, 0) + b"R"
    order += words(b"/usr/bin/id") + words() + words(b"id", b"-u") + words() + words()
    null = os.open("/dev/null", os.O_RDWR)
    output, writer = os.pipe()
    try:
        socket.send_fds(ours, [b"O"], [null, writer, null])
        ours.sendall(order)
        ours.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # It has ended.
    os.close(writer)
    ours.close()
    print("ran", os.read(output, 100).decode().strip() or "nothing")


main()
