# SPDX-License-Identifier: MIT OR Apache-2.0
"""The module as a file: size, relocations, and the cost of loading it in a fresh process."""

import re
import subprocess

from .. import contenders as who
from ..measure import rounds, summary
from ..mount_namespace import ENVIRONMENT, MEASURED_CPU


def load(bench):
    """Load shape: programs, data, repetitions."""
    return {"corpora": "no database", "clients": "1 fresh process at a time", "rounds": bench.repetitions}


def measure(bench):
    field = [each for each in (who.FLOOR, who.ROSTER, who.LIBNSS_CACHE) if bench.has(each)]
    libraries = {each: bench.modules / f"libnss_{each.service}.so.2" for each in field}

    def once(each):
        argv = ["taskset", "-c", str(MEASURED_CPU), bench.tools / "dlopen", libraries[each], each.service]
        ran = subprocess.run(argv, check=True, capture_output=True, text=True, env=ENVIRONMENT)
        return tuple(map(int, ran.stdout.split()))

    bench.progress.begin("dlopen in fresh processes")
    samples = rounds(field, bench.repetitions, float("inf"), once, bench.progress)
    return {
        each.name: {
            **_file(libraries[each]),
            "dlopen_ns": summary([loading for loading, _ in taken]),
            "first_lookup_ns": summary([first for _, first in taken]),
        }
        for each, taken in samples.items()
    }


def _file(library):
    def readelf(option):
        return subprocess.run(
            ["readelf", "-W", option, library], check=True, capture_output=True, text=True, env=ENVIRONMENT
        ).stdout

    relocations = readelf("-r")
    return {
        "bytes": library.stat().st_size,
        "relocations": len(re.findall(r"^[0-9a-f]{8,}\s", relocations, re.MULTILINE)),
        "relative_relocations": len(re.findall(r"R_\w+_RELATIVE\b", relocations)),
        "needed": re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d")),
        "thread_local": "TLS" in readelf("-l"),
    }
