# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tries wrong passwords at /run/roster/pam: try_passwords.py USER COUNT, or try_passwords.py USER COUNT OTHER...

For one user all are tried at once, and it prints the count of each verdict. For several they are tried in turn, one
after the other.
"""

import collections
import socket
import struct
import sys
import threading


def request(user, password):
    fields = [user.encode(), b"guess", b"", b"", b"", password.encode(), b""]
    return struct.pack("<4sHH7HHI", b"RSPQ", 1, 0, *map(len, fields), 0, 0xFFFF_FFFF) + b"".join(fields)


def verdict(user, password):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("/run/roster/pam")
        connection.sendall(request(user, password))
        header = connection.recv(20, socket.MSG_WAITALL)
    return struct.unpack_from("<H", header, 6)[0] if len(header) == 20 else "none"


user, count = sys.argv[1], int(sys.argv[2])

if sys.argv[3:]:
    for number in range(count):
        for name in (user, *sys.argv[3:]):
            verdict(name, f"guess {number}")
else:
    verdicts = collections.Counter()
    lock = threading.Lock()

    def guess(number):
        found = verdict(user, f"guess {number}")
        with lock:
            verdicts[found] += 1

    threads = [threading.Thread(target=guess, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(", ".join(f"{found}: {times}" for found, times in sorted(verdicts.items())))
