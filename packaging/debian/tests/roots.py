#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests the Debian packages in a root of a release: install, lookups, login, upgrade, remove and purge.

usage: packaging/debian/tests/roots.py ROOT DIR

DIR/test has the repositories before and after an upgrade. DIR/roots keeps the unpacked releases for later runs. The result
is DIR/test/ROOT.json and DIR/test/ROOT.txt. The exit status is 1 if a step failed. Needs root.
"""

import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent.parent
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
# Releases with a glibc that the programs of a build on Debian 12 run on, and older ones for builds with an older glibc.
RELEASES = {
    "debian-11": ("bullseye", DEBIAN, "main"),
    "debian-12": ("bookworm", DEBIAN, "main"),
    "debian-13": ("trixie", DEBIAN, "main"),
    "ubuntu-20.04": ("focal", UBUNTU, "main universe"),
    "ubuntu-22.04": ("jammy", UBUNTU, "main universe"),
    "ubuntu-24.04": ("noble", UBUNTU, "main universe"),
    "ubuntu-26.04": ("resolute", UBUNTU, "main universe"),
}
# Programs of the test. The rest is what the release and the packages bring.
TEST_PROGRAMS = "apt,ca-certificates,libpam-runtime,sudo,systemd,slapd,ldap-utils,pamtester,python3,perl-base,procps"
STEPS_TIMEOUT_S = 600
# Each attempt is followed by a pause of a tenth of a second.
ATTEMPTS = 600
# Arguments: the root, then the command.
ENTER_ROOT = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --bind "$0/proc/sys" "$0/proc/sys"
mount -o remount,bind,ro "$0/proc/sys"
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
mount -t tmpfs -o mode=755 tmpfs "$0/run"
mkdir -p "$0/run/lock"
cp --remove-destination /etc/resolv.conf /etc/hosts "$0/etc/"
cd "$0"
mkdir -p mnt/outside
{devices}
pivot_root . mnt/outside
umount -l mnt/outside
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive {exec}
"""
RUN_IN_ROOT = ENTER_ROOT.format(devices="mount --rbind /dev dev", exec='setsid -w "$@"')
# systemd gets its own devices, so that it cannot write to terminals of the machine, and its own control groups.
BOOT_ROOT = ENTER_ROOT.format(
    devices="""mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mkfifo dev/console
cat <>dev/console &
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
echo 0123456789abcdef0123456789abcdef >etc/machine-id""",
    exec="container=roster-test /lib/systemd/systemd --system --log-target=console --show-status=0",
)
# They end with this script, even if it is killed.
NAMESPACES = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]


def archive(name, folder):
    """The files of the release with the programs of the test, made once."""
    suite, mirror, components = RELEASES[name]
    path = folder / f"{name}.tar"
    if not path.exists():
        print(f"==> making a root of {name}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{name}.new.tar"
        source = f"deb [trusted=yes] {mirror} {suite} {components}"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={TEST_PROGRAMS}", suite]
        # Services of the test programs are not started.
        policy = "--customize-hook=printf '#!/bin/sh\\nexit 101\\n' >$1/usr/sbin/policy-rc.d; chmod 755 $1/usr/sbin/policy-rc.d"
        subprocess.run([*command, policy, str(unfinished), source], check=True)
        unfinished.rename(path)
    return path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(folder):
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def how_to_commands(url):
    """The commands of the how-to, with the address of the repository of this test."""
    text = (TREE / "docs/how-to/install.md").read_text()
    block = re.search(r"```console host\n((?:# .*\n)*?# .*roster\.asc(?:.*\n)*?)```", text)
    if not block:
        sys.exit("roots.py: docs/how-to/install.md has no block with roster.asc.")
    commands = [line[2:] for line in block.group(1).splitlines() if line.startswith("# ")]
    return "\n".join(commands).replace("https://packages.example.com/roster", url) + "\n"


def unpack(source, folder, address):
    """A root from the archive, with the scripts of the test and the commands of the how-to."""
    root = pathlib.Path(folder) / "root"
    root.mkdir()
    subprocess.run(["tar", "-xpf", str(source), "-C", str(root), "--numeric-owner"], check=True)
    inside = root / "opt/roster-test"
    inside.mkdir(parents=True)
    for file in ("functions", "steps", "booted", "lookups.py"):
        shutil.copy(HERE / file, inside / file)
    (inside / "install-before").write_text(how_to_commands(f"{address}/before"))
    # Old releases have no directory for keys of repositories.
    (root / "etc/apt/keyrings").mkdir(parents=True, exist_ok=True)
    return root


def run_steps(root):
    command = [*NAMESPACES, "bash", "-c", RUN_IN_ROOT, str(root), "bash", "/opt/roster-test/steps", str(free_port())]
    return run(command)


def run(command):
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEPS_TIMEOUT_S
    )
    return done.returncode, done.stdout.decode(errors="replace")


class ControlGroup:
    """A group of the unified hierarchy, which is removed with all processes in it."""

    def __init__(self):
        mounts = (line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())
        mounted = next(fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="roster-packages-", dir=mounted))

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        (self.path / "cgroup.kill").write_text("1")
        for _ in range(ATTEMPTS):
            try:
                for folder, _, _ in os.walk(self.path, topdown=False):
                    os.rmdir(folder)
                return
            except OSError:
                time.sleep(0.1)


def run_booted(root):
    """Boots systemd in the root, without a network, and runs the steps there."""
    with ControlGroup() as group, tempfile.TemporaryFile() as log:
        join = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
        boot = ["sh", "-c", join, str(group), *NAMESPACES, "--net", "--cgroup", "bash", "-c", BOOT_ROOT, str(root)]
        with subprocess.Popen(boot, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as machine:
            try:
                enter = ["nsenter", "-m", "-p", "-i", "-u", "-C", "-t", str(systemd_pid(machine)), "--"]
                environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
                wait = "systemctl is-system-running --wait; systemctl list-units --state=failed --no-legend"
                run([*enter, *environment, "sh", "-c", wait])
                return run([*enter, *environment, "bash", "/opt/roster-test/booted"])
            except LookupError as error:
                log.seek(0)
                return 1, f"{error}\n{log.read().decode(errors='replace')}"
            finally:
                machine.kill()


def systemd_pid(machine):
    """Process 1 of the namespaces, once it is systemd."""
    for _ in range(ATTEMPTS):
        if machine.poll() is not None:
            break
        try:
            child = pathlib.Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()[0]
            if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        except (OSError, IndexError):
            pass
        time.sleep(0.1)
    raise LookupError("systemd did not start")


def parse_steps(log):
    """Lines `@step NAME<tab>STATE<tab>SECONDS<tab>DETAIL` of the log."""
    fields = [line[len("@step ") :].split("\t") for line in log.splitlines() if line.startswith("@step ")]
    return [dict(zip(("name", "state", "seconds", "detail"), step)) for step in fields]


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in RELEASES:
        sys.exit(f"{__doc__}\nreleases: {', '.join(RELEASES)}")
    if os.geteuid() != 0:
        sys.exit("roots.py: installing packages in a root takes root. Run the command as root.")
    # Otherwise the roots and control groups stay after a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    name, out = sys.argv[1], pathlib.Path(sys.argv[2])
    started = time.monotonic()
    source = archive(name, out / "roots")
    made = time.monotonic()
    server = serve(out / "test")
    url = f"http://127.0.0.1:{server.server_port}"
    code, log = 0, ""
    for part, address in ((run_steps, url), (run_booted, "file:/opt/roster-test")):
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=out / "test") as folder:
            root = unpack(source, folder, address)
            if part is run_booted:
                for repository in ("before", "after"):
                    shutil.copytree(out / "test" / repository, root / "opt/roster-test" / repository)
            ended, output = part(root)
        code, log = code or ended, log + output
    server.shutdown()
    steps = parse_steps(log)
    failed = [step["name"] for step in steps if step["state"] != "ok"]
    result = {
        "root": name,
        "version": os.environ.get("ROSTER_PACKAGE_VERSION", ""),
        "passed": len(steps) - len(failed),
        "failed": failed,
        "complete": code == 0,
        "seconds_for_root": round(made - started, 1),
        "seconds": round(time.monotonic() - started, 1),
        "steps": steps,
    }
    report(result, out / "test" / name, log)
    return 0 if code == 0 and not failed else 1


def report(result, path, log):
    path.with_name(path.name + ".json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_name(path.name + ".log").write_text(log)
    lines = [f"{step['state']:7} {step['seconds']:>6}  {step['name']:34} {step['detail']}" for step in result["steps"]]
    state = "complete" if result["complete"] else "NOT COMPLETE"
    lines.append(
        f"{result['root']}: {result['passed']} passed, {len(result['failed'])} failed, {state}, "
        f"{result['seconds']:.0f} s, {result['seconds_for_root']:.0f} s of it for the root"
    )
    text = "\n".join(lines) + "\n"
    path.with_name(path.name + ".txt").write_text(text)
    print(text, end="")
    if result["failed"] or not result["complete"]:
        print("\n".join(log.splitlines()[-40:]), f"The log: {path}.log", sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
