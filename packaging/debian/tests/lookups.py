# SPDX-License-Identifier: MIT OR Apache-2.0
"""Looks a user up in 8 threads until the file of the second argument exists, and compares each reply.

usage: lookups.py USER STOP

Half of the threads call the C library in this process. The others start a new program for each lookup, which loads the
module that is installed at that moment. The output is `LOOKUPS FAILED WRONG` with the first failures.
"""

import grp
import os
import pwd
import subprocess
import sys
import threading

USER, STOP = sys.argv[1], sys.argv[2]
THREADS = 8
EXPECTED = pwd.getpwnam(USER), sorted(os.getgrouplist(USER, pwd.getpwnam(USER).pw_gid))
LINE = subprocess.run(["id", USER], check=True, stdout=subprocess.PIPE).stdout
lock = threading.Lock()
lookups, failures, wrong = 0, [], []


def in_process():
    entry = pwd.getpwnam(USER)
    groups = sorted(os.getgrouplist(USER, entry.pw_gid))
    for gid in groups:
        grp.getgrgid(gid)
    return (entry, groups) == EXPECTED, (entry, groups)


def new_program():
    done = subprocess.run(["id", USER], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise OSError(done.stdout)
    return done.stdout == LINE, done.stdout


def look_up(method):
    global lookups
    while not os.path.exists(STOP):
        try:
            right, reply = method()
        except (KeyError, OSError) as error:
            failures.append(f"{method.__name__}: {error}")
            right = True
        if not right:
            wrong.append(f"{method.__name__}: {reply}")
        with lock:
            lookups += 1


threads = [threading.Thread(target=look_up, args=(new_program if at % 2 else in_process,)) for at in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(lookups, len(failures), len(wrong), *failures[:2], *wrong[:2])
