#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A user at a terminal runs a command by roster-exec, presses keys and changes the window's size.

usage: exec_pty.py ROSTER-EXEC SOCKET CASE
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

SOON = 30


def start(script, *options):
    """Starts the program in a session with its own terminal, as a shell's job would have."""
    pid, terminal = pty.fork()
    if pid == 0:
        modes = termios.tcgetattr(0)
        # Its group must not be an orphan: no process of an orphan stops.
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execv(sys.argv[1], [sys.argv[1], "-s", sys.argv[2], *options, "sh", "-c", script])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        while True:
            _, status = os.waitpid(child, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.tcsetpgrp(0, os.getpgrp())
                print(f"job stopped by {os.WSTOPSIG(status)}", flush=True)
                sys.stdin.readline()
                os.tcsetpgrp(0, child)
                os.kill(child, signal.SIGCONT)
            elif os.WIFSIGNALED(status):
                print(f"job died of {os.WTERMSIG(status)}", flush=True)
                os._exit(0)
            else:
                os.tcsetpgrp(0, os.getpgrp())
                kept = "kept" if termios.tcgetattr(0) == modes else "changed"
                print(f"job ended with {os.WEXITSTATUS(status)}, modes {kept}", flush=True)
                print("shell got", sys.stdin.readline(), flush=True)
                os._exit(0)
    return pid, terminal


rest = {}


def expect(terminal, text):
    """Waits until the terminal shows a text, and returns the output before it. Output behind it is retained for the
    next call.
    """
    seen = rest.get(terminal, "")
    while text not in seen:
        if not select.select([terminal], [], [], SOON)[0]:
            raise SystemExit(f"no {text!r} in {seen!r}")
        try:
            seen += os.read(terminal, 4096).decode()
        except OSError:
            raise SystemExit(f"no {text!r} in {seen!r} before the end")
    before, _, rest[terminal] = seen.partition(text)
    print(text)
    return before


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def keys():
    """Keys, sizes and signals."""
    _, terminal = start("trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done")
    expect(terminal, "ready")
    resize(terminal, 33, 77)
    expect(terminal, "33 77")
    os.write(terminal, b"\x03")
    expect(terminal, "job died of 2")

    _, terminal = start("trap 'echo goes on' CONT; echo ready; until read line; do :; done; echo got $line; exit 5")
    expect(terminal, "ready")
    os.write(terminal, b"\x1a")
    expect(terminal, "job stopped by 20")
    os.write(terminal, b"fg\n")
    expect(terminal, "goes on")
    os.write(terminal, b"hello\n")
    expect(terminal, "got hello")
    expect(terminal, "job ended with 5, modes kept")

    # A command that stops itself, as an editor does that reads Ctrl-Z as a key.
    _, terminal = start("echo ready; kill -TSTP $$; echo goes on; exit 6")
    expect(terminal, "job stopped by 20")
    os.write(terminal, b"fg\n")
    expect(terminal, "goes on")
    expect(terminal, "job ended with 6, modes kept")

    # A command that reads Ctrl-C as a key gets it as one.
    _, terminal = start("stty raw -echo; echo ready; dd bs=1 count=1 2>&- | od -An -tx1; stty sane; exit 8")
    expect(terminal, "ready")
    os.write(terminal, b"\x03")
    expect(terminal, " 03")
    expect(terminal, "job ended with 8, modes kept")

    # All output is there before the end is.
    _, terminal = start("seq 20000; exit 9")
    expect(terminal, "20000")
    expect(terminal, "job ended with 9, modes kept")


def pipeline():
    """The program behind a pipe has the keys and the modes of the user's terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.argv[1], "-s", sys.argv[2], "sh", "-c", "echo ready; exec sleep 1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as job:
            print("pager shows", job.stdout.readline(), flush=True)
            print("pager got", sys.stdin.readline(), flush=True)
            job.terminate()
        print("job died of", -job.returncode, flush=True)
        os._exit(0)
    expect(terminal, "pager shows b'ready\\n'\r\n")
    os.write(terminal, b"key\n")
    expect(terminal, "pager got key")
    expect(terminal, "job died of 15")


def foreground():
    """A job in the background gets the keys when it is brought to the foreground, by a shell that sends no signal."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        command = [sys.argv[1], "-s", sys.argv[2], "sh", "-c", "echo ready; read line; echo got $line"]
        job = subprocess.Popen(command, process_group=0)
        sys.stdin.readline()
        print("fg", flush=True)
        os.tcsetpgrp(0, job.pid)
        sys.stdout.close()
        job.wait()
        os._exit(0)
    expect(terminal, "ready")
    os.write(terminal, b"fg\n")
    expect(terminal, "fg\r\nfg\r\n")
    os.write(terminal, b"hello\n")
    expect(terminal, "got hello")


def leftovers():
    """A process that the command leaves behind reads the terminal, and the user types."""
    _, terminal = start("exec 3<&0; (trap '' HUP; while read line <&3; do echo stole $line >&2; done) & echo ready; exit 7")
    expect(terminal, "ready")
    expect(terminal, "job ended with 7, modes kept")
    os.write(terminal, b"secret\n")
    expect(terminal, "shell got secret")


def own():
    """The caller's own terminal, if it is requested."""
    for options in ([], ["-t"]):
        pid, terminal = start("tty; echo end", *options)
        shown = expect(terminal, "end\r\n").split()
        print("own" if os.readlink(f"/proc/{pid}/fd/0") in shown else "other")


globals()[sys.argv[3]]()
