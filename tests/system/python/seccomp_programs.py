# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the seccomp filters of running processes with docs/internals/sandbox.md.

Usage: seccomp_programs.py PAGE ROLE=PID…, as root. ROLE is a row of the page's table of roles. Prints one
difference of each call. Exit status 1 if there is one, 2 if a filter cannot be read.

The script reads each filter out of the kernel and runs it on system calls and arguments. The expected results come from
the page. It knows numbers of calls from the C library's headers, and nothing of the code that made the filter.
"""

import ctypes
import errno
import os
import pathlib
import platform
import re
import socket
import struct
import subprocess
import sys

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_GET_FILTER = 17, 0x4206, 0x4207, 0x420C
WAIT_ALL = 0x40000000
X32_BIT = 0x40000000
CALLS = 600
ALLOWED, KILLED = "allowed", "killed"
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = 0x40000003  # i386
CLONE_FLAGS = {
    "CLONE_NEWNS": 0x20000, "CLONE_NEWCGROUP": 0x2000000, "CLONE_NEWUTS": 0x4000000, "CLONE_NEWIPC": 0x8000000,
    "CLONE_NEWUSER": 0x10000000, "CLONE_NEWPID": 0x20000000, "CLONE_NEWNET": 0x40000000,
}  # fmt: skip
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
KINDS = {"SOCK_STREAM": 1, "SOCK_DGRAM": 2, "SOCK_RAW": 3, "SOCK_RDM": 4, "SOCK_SEQPACKET": 5, "SOCK_DCCP": 6, "SOCK_PACKET": 10}
NETLINK = {"NETLINK_ROUTE": 0, "NETLINK_SELINUX": 7}
FLAGS = 0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
PROTOCOLS = *range(24), 33, 58, 115, 132, 136, 255, 262
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def main(page, *roles):
    page = Page(pathlib.Path(page).read_text())
    if unknown := {role.rpartition("=")[0] for role in roles} ^ set(page.roles):
        sys.exit(f"roles of the page and of the command line differ: {sorted(unknown)}")
    judged = {}
    differences = []
    for role in roles:
        name, _, pid = role.rpartition("=")
        filters = filters_of(int(pid))
        # Roles with the same filter and the same row are compared once.
        key = str((filters, page.roles[name]))
        if key not in judged:
            judged[key] = list(compare(filters, page, page.roles[name]))
        differences += [f"{name}: {difference}" for difference in judged[key]]
    for difference in differences:
        print(difference)
    sys.exit(1 if differences else 0)


class Page:
    """The rules in docs/internals/sandbox.md."""

    def __init__(self, text):
        sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
        rows = {name: table(section) for name, section in sections.items()}
        self.roles = {row[0].replace("`", ""): Role(row) for row in rows["Roles"]}
        numbers = numbers_of_calls()
        self.numbers = numbers
        self.calls = {}
        for calls, error, _ in rows["System calls"]:
            for call in quoted(calls):
                for number in every_number(numbers, call):
                    self.calls[number] = error
        by_call = {}
        for call, refused in rows["Arguments"]:
            by_call.setdefault(call.strip("`"), []).append(refused)
        self.namespaces = sum(CLONE_FLAGS[flag] for flag in quoted(by_call["clone"][0]))
        self.kinds = {KINDS[word] for word in quoted(by_call["socket"][1]) if word in KINDS}
        self.has_argument_rows = len(by_call["socket"]) == 3 and len(by_call["socketpair"]) == 1
        assert self.has_argument_rows, "the table of arguments has other rows than this script knows"

    def expected(self, role, call, arguments):
        """Returns the expected result of a call, by its number."""
        names = self.numbers
        if call in self.calls:
            return self.calls[call]
        if not role.executes and call in every_number(names, "execve") + every_number(names, "execveat"):
            return "EPERM"
        low = [argument & 0xFFFFFFFF for argument in arguments]
        if call in every_number(names, "clone") and low[0] & self.namespaces:
            return "EPERM"
        if call in every_number(names, "socketpair") and low[0] != FAMILIES["AF_UNIX"]:
            return "EPERM"
        if call in every_number(names, "socket") and self.is_refused_socket(role, *low[:3]):
            return "EPERM"
        return ALLOWED

    def is_refused_socket(self, role, family, kind, protocol):
        kind &= 0xF
        if family not in role.families:
            return True
        if family == FAMILIES["AF_NETLINK"]:
            return protocol != role.netlink
        if kind in self.kinds:
            return True
        if family == FAMILIES["AF_UNIX"]:
            return False
        allowed = {1: (0, socket.IPPROTO_TCP), 2: (0, socket.IPPROTO_UDP), 5: ()}
        return kind in allowed and protocol not in allowed[kind]


class Role:
    def __init__(self, row):
        self.executes = row[1] == "yes"
        words = quoted(row[2])
        self.families = {FAMILIES[word] for word in words if word in FAMILIES}
        self.netlink = next((NETLINK[word] for word in words if word in NETLINK), None)
        assert len(words) == len(self.families) + (self.netlink is not None), row

    def __repr__(self):
        return str((self.executes, sorted(self.families), self.netlink))


def table(section):
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def numbers_of_calls():
    """Numbers by name, and for x86-64 those of x32 with its mark."""

    def defined(header):
        command = ["cc", "-dM", "-E", "-include", header, "-x", "c", "/dev/null"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    native = re.findall(r"#define __NR_(\w+) (\d+)\n", defined("sys/syscall.h"))
    numbers = {name: [int(number)] for name, number in native}
    assert len(numbers) > 300, "the headers of the C library have no numbers of calls"
    if platform.machine() == "x86_64":
        for name, own in re.findall(r"#define __NR_(\w+) \(__X32_SYSCALL_BIT \+ (\d+)\)", defined("asm/unistd_x32.h")):
            numbers.setdefault(name, []).append(int(own))
    return numbers


def every_number(numbers, name):
    """All numbers of a call: the number itself, and for x86-64 the number with the mark of x32. None if this machine lacks the call."""
    own = sorted(set(numbers.get(name, [])))
    return own + [number | X32_BIT for number in own if platform.machine() == "x86_64"]


def compare(filters, page, role):
    """Yields differences between the filters and the page."""
    if not filters:
        yield "it has no seccomp filter"
        return
    architecture = ARCHITECTURES[platform.machine()]
    told = set()
    for call, arguments in cases(page, role):
        wanted = page.expected(role, call, arguments)
        found = outcome(filters, architecture, call, arguments)
        if found != wanted and (call, found) not in told:
            told.add((call, found))
            yield f"{shown(page, call, arguments)}: {found}, docs/internals/sandbox.md: {wanted}"
    if (found := outcome(filters, FOREIGN, 1, [0] * 6)) != KILLED:
        yield f"a call of another architecture: {found}, docs/internals/sandbox.md: {KILLED}"


def cases(page, role):
    marks = (0, X32_BIT) if platform.machine() == "x86_64" else (0,)
    numbers = page.numbers
    socket_call, pair_call, clone_call = (numbers[name][0] for name in ("socket", "socketpair", "clone"))
    for mark in marks:
        for call in range(CALLS):
            for arguments in ([0] * 6, [1] * 6, [2**64 - 1] * 6):
                yield call | mark, arguments
        for bit in range(64):
            for rest in (0, 17, 0x3D0F00):
                yield clone_call | mark, [1 << bit | rest, 0, 0, 0, 0, 0]
        for family in range(48):
            for flags in FLAGS:
                yield socket_call | mark, [family, 1 | flags, 0, 0, 0, 0]
                yield pair_call | mark, [family, 1 | flags, 0, 0, 0, 0]
        for family in (*FAMILIES.values(), 17):
            for kind in range(16):
                for protocol in PROTOCOLS:
                    yield socket_call | mark, [family, kind | FLAGS[1], protocol, 0, 0, 0]


def shown(page, call, arguments):
    number = call & ~X32_BIT
    name = next((name for name, numbers in page.numbers.items() if number in numbers), str(number))
    x32 = " of x32" if call & X32_BIT else ""
    if name == "clone":
        flags = [flag for flag, bit in CLONE_FLAGS.items() if arguments[0] & bit]
        return f"clone({'|'.join(flags) or hex(arguments[0])}){x32}"
    if name in ("socket", "socketpair"):
        return f"{name}({', '.join(map(str, arguments[:3]))}){x32}"
    return f"{name}({hex(arguments[0])}, …){x32}"


def outcome(filters, architecture, call, arguments):
    """Returns the kernel's action: the strictest of all filters, the newest of equally strict ones."""
    data = struct.pack("<iIQ6Q", call, architecture, 0, *arguments)
    results = [run(program, data) for program in reversed(filters)]
    strictest = min(results, key=lambda result: struct.unpack("i", struct.pack("I", result & 0xFFFF0000))[0])
    action, value = strictest & 0xFFFF0000, strictest & 0xFFFF
    if action == 0x7FFF0000:
        return ALLOWED
    if action == 0x00050000:
        return errno.errorcode[value]
    return KILLED if action in (0x80000000, 0) else hex(strictest)


def run(program, data):
    """The result of a classic BPF program, of those instructions that filters here are made of."""
    accumulator = at = 0
    while True:
        code, true, false, value = program[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return value
        elif code == 0x05:
            at += value
        elif code == 0x54:
            accumulator &= value
        elif code in JUMPS:
            at += true if JUMPS[code](accumulator, value) else false
        else:
            raise ValueError(f"instruction {code:#x} is unknown to this script")


JUMPS = {
    0x15: lambda accumulator, value: accumulator == value,
    0x25: lambda accumulator, value: accumulator > value,
    0x35: lambda accumulator, value: accumulator >= value,
    0x45: lambda accumulator, value: accumulator & value != 0,
}


def filters_of(pid):
    """Programs of a process, the oldest first. Each thread must have them all."""
    traced(PTRACE_SEIZE, pid)
    traced(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, WAIT_ALL)
    try:
        programs = []
        while True:
            length = LIBC.ptrace(PTRACE_GET_FILTER, pid, len(programs), None)
            if length < 0 and ctypes.get_errno() in (errno.ENOENT, errno.EINVAL):
                break
            if length < 0:
                sys.exit(f"the filter of process {pid} cannot be read: {os.strerror(ctypes.get_errno())}")
            code = ctypes.create_string_buffer(8 * length)
            traced(PTRACE_GET_FILTER, pid, len(programs), code)
            programs.append(list(struct.iter_unpack("=HBBI", code.raw)))
    finally:
        traced(PTRACE_DETACH, pid)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        assert f"Seccomp_filters:\t{len(programs)}\n" in status, f"thread {task.name} has other filters: {status}"
    return programs


def traced(request, pid, address=None, data=None):
    if LIBC.ptrace(request, pid, address, data) < 0:
        print(f"ptrace of process {pid}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
