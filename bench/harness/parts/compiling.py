# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster compile`: size of the snapshot, wall and processor time, peak memory."""

from ..measure import rounds, summary
from ..mount_namespace import ALL_CPUS, Launcher


def load(bench, corpora):
    """Load shape: programs, data, repetitions."""
    return {"corpora": corpora, "clients": "1 program at a time", "rounds": bench.builds}


def measure(bench, corpora):
    """Summaries by corpus. The text is in the page cache; the output is synced to disk, which is in
    the wall time and not in the processor time. Leaves the snapshot beside the text."""

    def once(corpus):
        text = ["--passwd", corpus.passwd, "--group", corpus.group]
        ran = launcher.run([bench.roster, "compile", *text, "--output", corpus.snapshot])
        if ran["status"] != 0:
            raise RuntimeError(f"roster compile of {corpus.shape} failed with status {ran['status']}")
        return ran

    result = {}
    with Launcher(["taskset", "-c", ALL_CPUS, bench.tools / "spawn"]) as launcher:
        for corpus, repetitions in corpora:
            bench.progress.begin(f"roster compile, {corpus.shape}")
            samples = rounds([corpus], repetitions, float("inf"), once, bench.progress)[corpus]
            result[str(corpus.shape)] = {
                "users": corpus.shape.users,
                "groups": corpus.shape.groups,
                "members": corpus.shape.members,
                "shape": corpus.shape.shape,
                "text_bytes": corpus.text_bytes,
                "snapshot_bytes": corpus.snapshot.stat().st_size,
                "wall_ns": summary([ran["ns"] for ran in samples]),
                "cpu_us": summary([ran["cpu_us"] for ran in samples]),
                "peak_kb": summary([ran["peak_kb"] for ran in samples]),
            }
    return result
