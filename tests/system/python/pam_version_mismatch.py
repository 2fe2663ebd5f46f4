# SPDX-License-Identifier: MIT OR Apache-2.0
"""A peer that uses version 7 of the login protocol.

pam_version_mismatch.py module: sends three requests to /run/roster/pam, and prints the version and verdict of each
answer. pam_version_mismatch.py daemon PAMTESTER PASSWORD: answers there with a yes. It prints pamtester's output for
alice and the system's log up to then.
"""

import socket
import struct
import subprocess
import sys

SOCKET = "/run/roster/pam"
ANSWER = "<4sHHHHII"

if sys.argv[1] == "module":
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(SOCKET)
            connection.sendall(b"RSPQ" + struct.pack("<H", 7) + b"whatever it may be")
            answer = struct.unpack(ANSWER, connection.recv(struct.calcsize(ANSWER), socket.MSG_WAITALL))
            print(f"version {answer[1]}, verdict {answer[2]}")
else:
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind("/dev/log")
    log.setblocking(False)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    listener.settimeout(60)
    argv = [sys.argv[2], "alone", "alice", "authenticate"]
    program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    program.stdin.write(f"{sys.argv[3]}\n")
    program.stdin.close()
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    connection.sendall(struct.pack(ANSWER, b"RSPA", 7, 0, 0, 0, 0, 0))
    print(program.stdout.read().strip())
    while True:
        try:
            print(log.recv(1 << 16).decode(errors="replace"))
        except BlockingIOError:
            break
