# SPDX-License-Identifier: MIT OR Apache-2.0
"""A user at a private terminal: pty_dialogue.py DIALOGUE COMMAND…

DIALOGUE is JSON, a list of pairs: the text that the terminal has to show, and the line that is typed then, if any.
Prints all output of the terminal, with echoed input, and ends as the command does.
"""

import json
import os
import pty
import select
import sys
import time

SOON = 30

dialogue, command = json.loads(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(command[0], command)

shown, read_until = "", 0
# Looks, 0.01 s apart, that take at least SOON.
looks = iter(range(100 * SOON))


def read():
    """Reads more output. Returns false once the command has ended and all is read."""
    global shown
    if not select.select([terminal], [], [], SOON)[0]:
        os.kill(pid, 9)
        sys.exit(f"the terminal says nothing more behind: {shown!r}")
    try:
        shown += os.read(terminal, 4096).decode(errors="replace")
        return True
    except OSError:
        # No process has the terminal open, perhaps for a moment: some programs open it again.
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            finish(status)
        time.sleep(0.01)
        return next(looks, None) is not None


def finish(status):
    print(shown.replace("\r\n", "\n"), end="")
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def wait_until_it_reads():
    """Programs discard input from before they switched the echo off, which is after they prompt."""
    sleeping = 0
    while sleeping < 3 and next(looks, None) is not None:
        time.sleep(0.01)
        with open(f"/proc/{os.tcgetpgrp(terminal)}/stat") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
        sleeping = sleeping + 1 if state == "S" else 0


for text, line in dialogue:
    while text not in shown[read_until:]:
        if not read():
            sys.exit(f"no {text!r} in {shown!r}")
    read_until += shown[read_until:].index(text) + len(text)
    if line:
        wait_until_it_reads()
        os.write(terminal, line.encode() + b"\n")
while read():
    pass
sys.exit(f"it did not end: {shown!r}")
