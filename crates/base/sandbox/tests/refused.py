# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tries system calls that a confined process may and may not make. Prints NAME=ERROR for each, with ok for a success."""

import ctypes
import errno
import os
import platform
import signal
import socket
import subprocess
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE3 = 435
FLAGS = {"NEWNS": 0x20000, "NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000}
NETFILTER, AUDIT = 12, 9


def tell(name, what, *arguments):
    try:
        what(*arguments)
        print(f"{name}=ok", flush=True)
    except OSError as error:
        print(f"{name}={errno.errorcode[error.errno]}", flush=True)


def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def clone(flags):
    child = LIBC.syscall(CLONE, ctypes.c_long(flags | signal.SIGCHLD), 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "")
    os.waitpid(child, 0)


def thread():
    started = threading.Thread(target=lambda: None)
    started.start()
    started.join()


for name, flag in FLAGS.items():
    tell(f"clone {name}", clone, flag)
tell("clone3", call, LIBC.syscall, CLONE3, 0, 0)
tell("unshare", call, LIBC.unshare, FLAGS["NEWUSER"])
inet, netlink = socket.AF_INET, socket.AF_NETLINK
tell("raw IPv4", socket.socket, inet, socket.SOCK_RAW, socket.IPPROTO_ICMP)
tell("raw IPv6", socket.socket, socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 58)
tell("ping", socket.socket, inet, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
tell("SCTP", socket.socket, inet, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
tell("packet", socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM, 0)
tell("netfilter", socket.socket, netlink, socket.SOCK_RAW, NETFILTER)
tell("audit", socket.socket, netlink, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, AUDIT)
tell("pair", socket.socketpair, socket.AF_TIPC, socket.SOCK_STREAM, 0)
tell("device", os.mknod, "/tmp/device", 0o20600, os.makedev(1, 3))
tell("fanotify", call, LIBC.fanotify_init, 0, 0)
tell("handle", call, LIBC.name_to_handle_at, -1, b"", 0, 0, 0)
tell("vmsplice", call, LIBC.vmsplice, 1, 0, 0, 0)
for name, arguments in ("iopl", (3,)), ("ioperm", (0, 1, 1)), ("modify_ldt", (0, 0, 0)):
    if hasattr(LIBC, name):
        tell(name, call, getattr(LIBC, name), *arguments)

print("allowed:")
tell("process", clone, 0)
tell("program", subprocess.run, ["true"])
tell("thread", thread)
tell("TCP", socket.socket, inet, socket.SOCK_STREAM, socket.IPPROTO_TCP)
tell("UDP", socket.socket, socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
tell("unix", socket.socketpair, socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)
tell("routes", socket.socket, netlink, socket.SOCK_RAW, 0)
tell("resolver", socket.getaddrinfo, "localhost", 80)
