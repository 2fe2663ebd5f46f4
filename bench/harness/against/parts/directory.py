# SPDX-License-Identifier: MIT OR Apache-2.0
"""The directory servers that the parts about rosterd share: slapd on loopback, one small directory."""

from ... import directory as d
from ...directory import Directory, DirectoryShape
from ...mount_namespace import SNAPSHOT_FOLDERS
from ...servers import Slapd

SHAPE = DirectoryShape(400, 100, 20, 20)
SNAPSHOT_WITHIN_MS = 60_000


def loaded_server(run):
    """A stopped slapd that holds the directory."""
    folder = run.folder("slapd")
    folder.mkdir()
    ldif = folder / "load"
    Directory(SHAPE, run.seed).write_ldif(ldif, d.RFC2307)
    server = Slapd(folder, d.RFC2307)
    server.load(ldif)
    return server


def await_snapshot(side, roster, begin):
    """Returns when rosterd, started at `begin`, has published its first snapshot."""
    with roster.helper(side.tools / "change_visibility", *SNAPSHOT_FOLDERS) as watch:
        if not int(watch.ask(f"renamed {roster.snapshot_name} {begin} {SNAPSHOT_WITHIN_MS}")[0]):
            raise RuntimeError(f"{side.name}: no snapshot within {SNAPSHOT_WITHIN_MS} ms: {roster.said()[-2000:]}")
