# SPDX-License-Identifier: MIT OR Apache-2.0
"""Private mount namespaces ("rooms") in which one implementation is the machine's source of users and groups.

A namespace has its own /etc, /var/lib and /run; the machine's are neither changed nor seen. Modules are found through
the namespace's ld.so.cache, as installed ones are. LD_LIBRARY_PATH would add searches that an installed module does not
pay for.
"""

import os
import select
import socket
import subprocess
import time
from pathlib import Path

READY_WITHIN_S = 20
# Directories of snapshots, as programs name them; the second is that of builds before 0.1.0.
SNAPSHOT_FOLDER = "/var/lib/roster/snap"
SNAPSHOT_NAME = "roster.v3.snap"
# The name in builds before version 3 had its number in it, which `--against` measures as well.
OLD_SNAPSHOT_NAME = "roster.snap"
SNAPSHOT_FOLDERS = (SNAPSHOT_FOLDER, "/var/lib/roster")
ANSWER_WITHIN_S = 600  # `id` through glibc files takes 20 s, and more on a busy machine
# The measured programs have the last processor to themselves; this program and daemons take the first.
MEASURED_CPU = (os.cpu_count() or 1) - 1
SUPPORT_CPU = 0
ALL_CPUS = f"0-{MEASURED_CPU}"
URGENT, ORDINARY = -20, 0

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def at_priority(wanted, own=None):
    """The command that starts a program at that priority, from a process with the priority `own` (this one's)."""
    step = wanted - (os.getpriority(os.PRIO_PROCESS, 0) if own is None else own)
    return ("nice", "-n", str(step)) if step else ()


def come_first():
    """From here on this program has priority over other work of the machine, if it may."""
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)


class HelperDied(RuntimeError):
    pass


class Helper:
    """A C helper that answers each line on its standard input with one line."""

    def __init__(self, argv):
        self.argv = [str(word) for word in argv]
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], ANSWER_WITHIN_S)[0]:
                self.process.kill()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise HelperDied(f"{' '.join(self.argv[-4:])} ended (status {self.process.wait()}) when asked: {line}")
        return answer.split()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Launcher(Helper):
    """Runs programs and times them; see spawn.c."""

    def run(self, argv, output="/dev/null"):
        ns, user_us, system_us, peak_kb, status = map(int, self.ask("\t".join(["run", str(output), *map(str, argv)])))
        return {"ns": ns, "cpu_us": user_us + system_us, "peak_kb": peak_kb, "status": status}

    def start(self, argv):
        return int(self.ask("\t".join(["start", "/dev/null", *map(str, argv)]))[0])

    def stop(self, pid):
        self.ask(f"stop\t{pid}")


class Room:
    """One namespace. `etc` and `state` map files in /etc and /var/lib/roster to their text, or to the path of a file.
    Such a file is linked, not copied: some are large, and all are only read. `mounts` is more for the shell to do
    before anything runs. Programs and helpers of an `urgent` namespace have priority over other work of the machine,
    which then disturbs their times less. Its daemons have the ordinary priority."""

    def __init__(self, folder, tools, modules, etc, state=None, mounts="", urgent=False):
        self.priority = URGENT if urgent and os.geteuid() == 0 else ORDINARY
        self.folder = Path(folder)
        self.tools = tools
        self.mounts = mounts
        self.etc = self.folder / "etc"
        self.var_lib = self.folder / "var-lib"
        (self.var_lib / "roster/snap").mkdir(parents=True)
        self.etc.mkdir()
        for place, files in ((self.etc, etc), (self.var_lib / "roster", state or {})):
            for name, content in files.items():
                (place / name).parent.mkdir(exist_ok=True)
                if isinstance(content, Path):
                    os.link(content, place / name)
                else:
                    (place / name).write_text(content)
        (self.folder / "ld.so.conf").write_text(f"{modules}\ninclude /etc/ld.so.conf\n")
        subprocess.run(
            ["ldconfig", "-X", "-C", self.etc / "ld.so.cache", "-f", self.folder / "ld.so.conf"],
            check=True,
            env=ENVIRONMENT,
        )

    def __enter__(self):
        new = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        mounts = (
            f"mount --bind '{self.etc}' /etc && mount --bind '{self.var_lib}' /var/lib && "
            f"mount -t tmpfs tmpfs /run && mkdir /run/nscd && {self.mounts} exec \"$@\""
        )
        self.launcher = Launcher([*new, "sh", "-c", mounts, "sh", *self._pinned(self.tools / "spawn")])
        self.run = self.launcher.run
        if self.run(["/bin/true"])["status"] != 0:  # also waits until the mounts are done
            raise RuntimeError("nothing can be run in a private mount namespace")
        return self

    def __exit__(self, *_):
        self.launcher.close()

    def helper(self, *argv):
        """Another C helper in this room."""
        return Helper([*self._entered(), *self._pinned(*argv)])

    def command(self, *argv):
        """The command line that runs `argv` in this room, on any processor."""
        return [*map(str, self._entered()), "taskset", "-c", ALL_CPUS, *at_priority(self.priority), *map(str, argv)]

    def start_daemon(self, argv, listening_on):
        """Starts a daemon in the foreground, and waits until it accepts a connection."""
        pid = self.launcher.start([*at_priority(ORDINARY, self.priority), "taskset", "-c", SUPPORT_CPU, *argv])
        # The room's file system, seen from outside.
        path = f"/proc/{self.launcher.process.pid}/root{listening_on}"
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            with socket.socket(socket.AF_UNIX) as client:
                if client.connect_ex(path) == 0:
                    return pid
            if time.monotonic() > deadline:
                raise RuntimeError(f"{argv[0]} does not listen on {listening_on} after {READY_WITHIN_S} s")
            time.sleep(0.002)

    def stop_daemon(self, pid):
        self.launcher.stop(pid)

    def _entered(self):
        user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", self.launcher.process.pid, *user, "-m"]

    def _pinned(self, *argv):
        return ["taskset", "-c", str(MEASURED_CPU), *at_priority(self.priority), *argv]
