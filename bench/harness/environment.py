# SPDX-License-Identifier: MIT OR Apache-2.0
"""The environment of the results: machine, software, load."""

import os
import platform
import re
import subprocess
import time
from pathlib import Path


def describe(repository, work, peer_versions):
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "commit": commit(repository),
        "cpu": _field("/proc/cpuinfo", r"model name\s*: (.*)") or platform.machine(),
        "processors": os.cpu_count(),
        "memory_mb": int(_field("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0) // 1024,
        "kernel": platform.release(),
        "distribution": _field("/etc/os-release", r'PRETTY_NAME="(.*)"'),
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "coreutils": (re.findall(r"[\d.]+", _said("id", "--version")) or [""])[0],
        "compiler": _said("cc", "--version").split("\n")[0],
        "rustc": _said("rustc", "--version"),
        "work_file_system": _said("stat", "-f", "-c", "%T", work),
        "packages": peer_versions,
        "load_average_before": os.getloadavg()[0],
    }


def commit(repository):
    return _said("git", "-C", repository, "rev-parse", "--short=12", "HEAD") + _changed(repository)


def _changed(repository):
    return ", with uncommitted changes" if _said("git", "-C", repository, "status", "--porcelain", "-uno") else ""


def _said(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _field(path, pattern):
    found = re.search(pattern, Path(path).read_text(errors="replace"))
    return found.group(1) if found else ""
