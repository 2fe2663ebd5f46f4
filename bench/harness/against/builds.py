# SPDX-License-Identifier: MIT OR Apache-2.0
"""Installed builds: which files of an older build and of this tree are measured.

Finds programs and modules below a directory that `make install` with DESTDIR= filled. Builds nothing itself: that is
`scripts/bench-base` for an older revision and `make` for this tree.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLD, NEW = "old", "new"
SIDES = (OLD, NEW)
# Written by scripts/bench-base into the directory: the full commit.
NOTE = "bench-base.commit"
ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Build:
    side: str
    folder: Path
    commit: str

    def file(self, name):
        """The one program or module of that name."""
        found = [path for path in sorted(self.folder.rglob(name)) if _is_elf(path)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RuntimeError(
                f"{self.folder}: several files are named {name}: {', '.join(map(str, found))}. Leave one installation."
            )
        raise RuntimeError(
            f"{self.folder}: program or module {name} is missing. Install a build there: make bench-base REV=… BASE=DIR"
        )


def installed(side, folder, commit=""):
    """The build below a directory. The note of scripts/bench-base has its commit."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise RuntimeError(f"{folder}: not a directory. Make it: make bench-base REV=… prints the folder.")
    note = folder / NOTE
    return Build(side, folder, commit or (note.read_text().strip() if note.exists() else "unknown"))


def install_tree(repository, folder, commit, build):
    """This tree, installed in the layout of the older build."""
    make = ["make", "--no-print-directory"]
    # Called by make, its own variables would come first.
    environment = os.environ | {"DESTDIR": str(folder), "PREFIX": "/usr", "MAKEFLAGS": ""}
    shutil.rmtree(folder, ignore_errors=True)
    for target in (["build"] if build else []) + ["install"]:
        subprocess.run([*make, target], cwd=repository, check=True, stdout=sys.stderr, env=environment)
    return installed(NEW, folder, commit)


def _is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ELF_MAGIC)) == ELF_MAGIC
