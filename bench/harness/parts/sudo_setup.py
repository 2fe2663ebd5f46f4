# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mount namespace of the parts about commands as root, in which sudo and doas may be configured."""

import json
import os
import platform
import subprocess
import sys

from ..mount_namespace import ENVIRONMENT, Room

PEERS = {"sudo": "sudo", "doas": "opendoas"}
WITHIN_S = 1800
PAM = "auth required pam_permit.so\naccount required pam_unix.so\nsession required pam_unix.so\n"
# Files that sudo and doas need, so that they send no request to the network.
ETC = {
    "sudoers": "root ALL=(ALL) NOPASSWD: ALL\n",
    "doas.conf": "permit nopass root\n",
    "pam.d/sudo": PAM,
    "pam.d/doas": PAM,
    "passwd": "root:x:0:0:root:/root:/bin/sh\nthird:x:1003:1003::/:/bin/sh\n",
    "shadow": "root:*:19000:0:99999:7:::\n",
    "group": "root:x:0:\nthird:x:1003:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "hosts": f"127.0.0.1 localhost {platform.node()}\n",
}


def peers(bench):
    """The command lines of the available peers, by name."""
    calls = {"sudo": ["sudo", "-n"], "doas": ["doas", "-n"]}
    return {name: calls[name] for name, package in PEERS.items() if bench.peer_versions[package]}


def room(bench, folder, urgent=False):
    if os.geteuid() != 0:
        raise RuntimeError("it is root's commands that are timed: run it as root")
    layers = ":".join(str(bench.peers / PEERS[name] / "usr") for name in peers(bench))
    over = f"mount -t overlay overlay -o lowerdir={layers}:/usr /usr && " if layers else ""
    made = Room(folder / "room", bench.tools, bench.modules, ETC, mounts=over, urgent=urgent)
    for name in ("sudoers", "doas.conf"):
        (made.etc / name).chmod(0o400)
    return made


def timed(bench, room, python, script, part, settings):
    """The output of a script of this directory's parent, in the namespace."""
    command = room.command(python, bench.here / script, part, json.dumps(settings))
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=sys.stderr, env=ENVIRONMENT, timeout=WITHIN_S)
    if ran.returncode != 0:
        raise RuntimeError(f"{script} {part} ended with {ran.returncode}")
    return json.loads(ran.stdout)
