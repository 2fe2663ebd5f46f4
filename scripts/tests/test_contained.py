# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/contained: nothing outlives the command, however it ends."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

CONTAINED = pathlib.Path(__file__).resolve().parent.parent / "contained"
ENDED_WITHIN_S = 120
# Everything that tests start: a daemon in a separate session, a mount, sockets, a namespace, a control group.
STARTS_ALL = r"""
setsid sleep {seconds} &
mkdir /tmp/mount && mount -t tmpfs tmpfs /tmp/mount
setsid unshare --net sleep {seconds} &
python3 -c '
import socket, time
kept = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for one, name in zip(kept, ["\0contained-{seconds}", "/tmp/socket-{seconds}"]):
    one.bind(name)
    one.listen()
print("ready", flush=True)
time.sleep({seconds})'
"""


def run(*command, grace_s="60"):
    environment = os.environ | {"CONTAINED_GRACE_S": grace_s}
    return subprocess.run([CONTAINED, *command], capture_output=True, text=True, timeout=ENDED_WITHIN_S, env=environment)


def processes(words):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(entry.name)
        except OSError:
            continue
    return found


def group_of(pid):
    """The directory of the control group of a process, or None without cgroup2."""
    mounted = re.search(r" (/\S*) (/\S*) \S+ (?:\S+ )*- cgroup2 ", pathlib.Path("/proc/self/mountinfo").read_text())
    own = re.search(r"^0::(.*)$", pathlib.Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
    return pathlib.Path(mounted.group(2) + own.group(1)) if mounted and own else None


class Contained(unittest.TestCase):
    def eventually(self, what, holds):
        for _ in range(20 * ENDED_WITHIN_S):
            if holds():
                return
            time.sleep(0.05)
        self.fail(f"not within {ENDED_WITHIN_S} s: {what}")

    def test_command_status_is_passed_on(self):
        self.assertEqual(run("true").returncode, 0)
        self.assertEqual(run("sh", "-c", "exit 3").returncode, 3)
        self.assertEqual(run("sh", "-c", "kill -TERM $$").returncode, 128 + signal.SIGTERM)
        self.assertEqual(run("/no/such/program").returncode, 127)

    def test_process_left_behind_is_named_and_ended(self):
        for options in ([], ["--machine-pids"]):
            with self.subTest(options=options):
                done = run(*options, "sh", "-c", "setsid sleep 86399 &", grace_s="1")
                self.assertEqual(done.returncode, 70)
                self.assertRegex(done.stderr, r"process left behind: \d+ sleep 86399")
                self.assertEqual(done.stderr.count("left behind"), 1)
                self.eventually("the process ends", lambda: not processes("sleep 86399"))

    def test_machine_pids_are_those_of_the_machine(self):
        ours = f"/proc/{os.getpid()}/cmdline"
        self.assertEqual(run("--machine-pids", "cat", ours).stdout, pathlib.Path(ours).read_text())
        self.assertNotEqual(run("cat", ours).stdout, pathlib.Path(ours).read_text())

    def test_ignored_signals_are_not_passed_on(self):
        ignoring = "trap '' HUP INT QUIT TERM; exec \"$0\" grep SigIgn /proc/self/status"
        done = subprocess.run(["sh", "-c", ignoring, CONTAINED], capture_output=True, text=True, timeout=ENDED_WITHIN_S)
        ignored = int(done.stdout.split()[1], 16)
        named = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
        self.assertEqual([number for number in named if ignored & 1 << (number - 1)], [])

    def test_closed_streams_do_not_end_the_command(self):
        for closed in ("<&-", ">&-", "<&- >&- 2>&-"):
            done = subprocess.run(["sh", "-c", f'"$0" sh -c "exit 3" {closed}', CONTAINED], timeout=ENDED_WITHIN_S)
            self.assertEqual(done.returncode, 3, closed)

    def test_orphan_that_ends_is_no_failure(self):
        done = run("sh", "-c", "sh -c 'setsid sleep 0.2 &'")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_temporary_folders_are_private_and_empty(self):
        with tempfile.NamedTemporaryFile(dir="/tmp") as ours:
            done = run("sh", "-c", f"ls -A /tmp /dev/shm; touch {ours.name}.theirs; echo $TMPDIR")
            self.assertNotIn(pathlib.Path(ours.name).name, done.stdout)
            self.assertTrue(done.stdout.endswith("/tmp\n"), done.stdout)
            self.assertFalse(pathlib.Path(f"{ours.name}.theirs").exists())

    def test_tree_below_tmp_stays_visible(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            scripts = pathlib.Path(folder) / "tree/scripts"
            scripts.mkdir(parents=True)
            copy = scripts / "contained"
            copy.write_bytes(CONTAINED.read_bytes())
            copy.chmod(0o755)
            done = subprocess.run([copy, "cat", copy], capture_output=True, text=True, timeout=ENDED_WITHIN_S)
            self.assertEqual(done.stdout, CONTAINED.read_text())

    def test_killed_script_leaves_nothing_behind(self):
        for options in ([], ["--machine-pids"]):
            with self.subTest(options=options):
                self.kill_and_look(options)

    def kill_and_look(self, options):
        seconds = 80_000 + os.getpid() % 1000
        with subprocess.Popen(
            [CONTAINED, *options, "sh", "-c", STARTS_ALL.replace("{seconds}", str(seconds))], stdout=subprocess.PIPE, text=True
        ) as started:
            self.assertEqual(started.stdout.readline(), "ready\n")
            inside = processes(f"sleep {seconds}")
            self.assertGreaterEqual(len(inside), 2)
            namespaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in inside}
            self.assertEqual(len(namespaces), 2)
            group = group_of(started.pid)
            self.assertIn("roster-contained-", str(group))
            started.send_signal(signal.SIGKILL)
        self.eventually("processes end", lambda: not processes(str(seconds)))
        self.eventually("the control group is removed", lambda: not group.exists())
        self.assertNotIn(f"contained-{seconds}", pathlib.Path("/proc/net/unix").read_text())
        with socket.socket(socket.AF_UNIX) as free:
            free.bind(f"\0contained-{seconds}")
        self.assertNotIn("/tmp/mount", pathlib.Path("/proc/self/mountinfo").read_text())
        self.assertFalse(pathlib.Path(f"/tmp/socket-{seconds}").exists())

    def test_parent_killed_command_ends(self):
        # The parent stands for scripts/run-tests.
        parent = subprocess.Popen(
            ["python3", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", CONTAINED, "sleep", "86398"]
        )
        self.eventually("the command starts", lambda: len(processes("sleep 86398")) >= 4)
        parent.kill()
        parent.wait()
        self.eventually("the command ends", lambda: not processes("sleep 86398"))


if __name__ == "__main__":
    unittest.main()
