"""Tries wrong passwords for a user at /run/roster/pam: guess.py USER COUNT [one by one].

All at once, it prints how often each verdict came; one by one, the median of the times as well, in
milliseconds.
"""

import collections
import socket
import statistics
import struct
import sys
import threading
import time


def request(user, password):
    fields = [user.encode(), b"guess", b"", b"", b"", password.encode(), b""]
    return struct.pack("<4sHH7HH", b"RSPQ", 1, 0, *map(len, fields), 0) + b"".join(fields)


def verdict(user, password):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("/run/roster/pam")
        connection.sendall(request(user, password))
        header = connection.recv(20, socket.MSG_WAITALL)
    return struct.unpack_from("<H", header, 6)[0] if len(header) == 20 else "none"


user, count = sys.argv[1], int(sys.argv[2])
verdicts, times = collections.Counter(), []


def guess(number):
    start = time.perf_counter()
    found = verdict(user, f"guess {number}")
    times.append(1000 * (time.perf_counter() - start))
    verdicts[found] += 1


if sys.argv[3:]:
    for number in range(count):
        guess(number)
    print(dict(verdicts), round(statistics.median(times), 2))
else:
    threads = [threading.Thread(target=guess, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(", ".join(f"{found}: {times}" for found, times in sorted(verdicts.items())))
