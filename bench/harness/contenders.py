# SPDX-License-Identifier: MIT OR Apache-2.0
"""The measured implementations: for each its lines of nsswitch.conf, its files and its daemon."""

import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import nss_baseline, libnss_cache
from .mount_namespace import OLD_SNAPSHOT_NAME, Room, SNAPSHOT_FOLDER, SNAPSHOT_NAME

# The users of a host that are not in the corpus.
LOCAL_PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
LOCAL_GROUP = "root:x:0:\nnogroup:x:65534:\n"

NSCD_SOCKET = "/run/nscd/socket"
# Room for every answer of the corpus, nothing cached between starts, no check of files meanwhile. The suggested size is
# in KiB, too: a map that has to grow sends its readers to the socket.
NSCD_CONF = "paranoia no\n" + "".join(
    f"enable-cache {map} yes\npositive-time-to-live {map} 3600\nnegative-time-to-live {map} 3600\n"
    f"suggested-size {map} {size}\ncheck-files {map} no\npersistent {map} no\nshared {map} yes\n"
    f"max-db-size {map} 1073741824\n"
    for map, size in (("passwd", 65537), ("group", 262147))
)


# As the publisher and `roster compile` leave it: the name has the inode number, other metadata is that of the file. The
# second copy is for older builds.
COPY_IN_MEMORY = (
    "mkdir -p /run/roster/snap && mount -t tmpfs -o mode=755,huge=within_size tmpfs /run/roster/snap && "
    f"cp -p {SNAPSHOT_FOLDER}/{SNAPSHOT_NAME} /run/roster/snap/v3.$(printf %016x $(stat -c %i {SNAPSHOT_FOLDER}/{SNAPSHOT_NAME})) && "
    f"cp -p {SNAPSHOT_FOLDER}/{OLD_SNAPSHOT_NAME} /run/roster/snap/$(printf %016x $(stat -c %i {SNAPSHOT_FOLDER}/{OLD_SNAPSHOT_NAME})) && "
)


def nsswitch(services):
    """The text of nsswitch.conf. `initgroups` has the same order, and continues after a success as `group` does: a user
    may be in local groups too."""
    first, *rest = services.split()
    each = " ".join([f"{first} [SUCCESS=continue]", *rest]) if rest else first
    return f"passwd: {services}\ngroup: {services}\ninitgroups: {each}\nshadow: files\n"


@dataclass(frozen=True)
class Contender:
    name: str  # as in the tables
    services: str  # of nsswitch.conf
    service: str = ""  # whose module can be called directly
    module: str = ""  # its file, if it is another than the service's
    package: str = ""  # which must be there
    daemon: bool = False
    members: bool = True  # its groups have members
    corpus_is_local: bool = False
    maps: str = ""  # of `roster nscd`: the option of the tmpfs that they lie on


FLOOR = Contender("floor (no members)", "floor files", service="floor", members=False)
FLOOR_LAST = Contender("floor, files first", "files floor", members=False)
ROSTER = Contender("roster", "roster files", service="roster")
# The same without checks of checksums: shows their cost.
UNCHECKED = Contender(
    "roster without checksums", "roster files", service="roster", module="unchecked/libnss_roster.so.2"
)
ROSTER_LAST = Contender("roster, files first", "files roster")
# nscd is only a cache. It queries the modules for missing keys, here the fastest module.
NSCD = Contender("nscd, warm", "roster files", package="nscd", daemon=True)
NSCD_COLD = Contender("nscd, cold", "roster files", package="nscd", daemon=True)
# It never calls the module. The services named here fill its maps, and answer without it.
MAPS = Contender("roster nscd", "roster files", maps="huge=never")
MAPS_HUGE = Contender("roster nscd, huge pages", "roster files", maps="huge=always")
# With files alone, which nscd follows.
NSCD_OF_FILES = Contender("nscd, /etc/passwd", "files", package="nscd", daemon=True, corpus_is_local=True)
MAPS_OF_FILES = Contender("roster nscd, /etc/passwd", "files", maps="huge=never", corpus_is_local=True)
LIBNSS_CACHE = Contender("libnss-cache", "cache files", service="cache", package="libnss-cache")
FILES = Contender("glibc files", "files", corpus_is_local=True)
NOBODY = Contender("two-line files", "files")


class Setting:
    """Puts contenders into rooms, each with the same corpus."""

    def __init__(self, corpus, folder, tools, modules, peers, urgent=False):
        self.urgent = urgent
        self.corpus, self.folder, self.tools, self.modules, self.peers = corpus, folder, tools, modules, peers
        self.floor_file = folder / "floor.bin"
        self.cache_files = None
        folder.mkdir(parents=True)

    @contextmanager
    def room(self, contender):
        etc = {"nsswitch.conf": nsswitch(contender.services), "passwd": LOCAL_PASSWD, "group": LOCAL_GROUP}
        state, mounts = {}, ""
        services = contender.services.split()
        if contender.corpus_is_local:
            etc |= {"passwd": self.corpus.passwd, "group": self.corpus.group}
        if "roster" in services:
            # An older build in a comparison looks in the other places.
            places = (f"snap/{SNAPSHOT_NAME}", f"snap/{OLD_SNAPSHOT_NAME}", OLD_SNAPSHOT_NAME)
            state |= dict.fromkeys(places, self.corpus.snapshot)
            mounts = COPY_IN_MEMORY
        if "floor" in services:
            if not self.floor_file.exists():
                nss_baseline.write(self.corpus, self.floor_file)
            state["floor.bin"] = self.floor_file
        if "cache" in services:
            self.cache_files = self.cache_files or libnss_cache.files(self.corpus, self.folder / "libnss-cache")
            etc |= self.cache_files
        if contender.daemon:
            etc["nscd.conf"] = NSCD_CONF
        name = "".join(letter if letter.isalnum() else "-" for letter in contender.name)
        place = self.folder / "rooms" / name
        with Room(place, self.tools, self.modules, etc, state, mounts, urgent=self.urgent) as room:
            yield room

    def start(self, contender, room):
        """The contender's daemon, ready to answer."""
        return self.start_maps(room, contender.maps) if contender.maps else self.start_nscd(room)

    def start_maps(self, room, option):
        room.run(["/bin/sh", "-c", f"mkdir -p /run/maps && mount -t tmpfs -o mode=700,{option} tmpfs /run/maps"])
        pid = room.start_daemon([self.tools / "roster", "nscd", "--maps", "/run/maps"], NSCD_SOCKET)
        # A map of each table is there when the first ones of this order are.
        for table in ("passwd", "group"):
            room.run([self.tools / "roster", "nscd", "--invalidate", table])
        return pid

    def start_nscd(self, room):
        return room.start_daemon([self.peers / "nscd" / "usr/sbin/nscd", "-F"], NSCD_SOCKET)


def checked(argv):
    """Runs a command that must succeed, and drops its output."""
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fetch(packages, folder):
    """Unpacks Debian packages without installing them: their scripts would edit nsswitch.conf and start daemons.
    Returns version by package, "" for unavailable packages."""
    versions = dict.fromkeys(packages, "")
    for package in packages:
        unpacked = Path(folder) / package
        note = Path(folder) / f"{package}.version"
        if not note.exists():
            unpacked.mkdir(parents=True, exist_ok=True)
            fetched = subprocess.run(
                ["apt-get", "-o", "APT::Sandbox::User=root", "download", package],
                cwd=unpacked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            archives = list(unpacked.glob("*.deb"))
            if fetched.returncode != 0 or not archives:
                continue
            subprocess.run(["dpkg", "-x", archives[0], unpacked], check=True)
            # Some still have /lib, which is /usr/lib.
            if (unpacked / "lib").is_dir():
                shutil.copytree(unpacked / "lib", unpacked / "usr/lib", symlinks=True, dirs_exist_ok=True)
            version = subprocess.check_output(["dpkg-deb", "-f", archives[0], "Version"], text=True)
            archives[0].unlink()
            note.write_text(version.strip())
        versions[package] = note.read_text()
    return versions
