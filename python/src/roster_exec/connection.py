# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections to the daemon, retained for the next command and shared by all threads of a process."""

import atexit
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Optional

from . import wire
from .errors import NO_DAEMON, NoDaemon

# Connections that wait for a command; the daemon allows 256 for a user.
IDLE_MAX = 64
# The daemon has to read a request within this time.
SEND_TIME_S = 10
# Bytes read at once: more than the replies to a command have.
_READ_BYTES = 8192
_TIME = struct.Struct("@ll")


class Gone(Exception):
    """The daemon has closed the connection."""


class Unread(Gone):
    """The daemon also left bytes of the request unread, so it started nothing."""


class Late(Exception):
    """No answer came in time."""


class Connection:
    """One connection, which has one command at a time."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Not settimeout: every receive would need another system call, which checks for data.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(SEND_TIME_S, 0))
            self._socket.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            self._socket.close()
            raise NoDaemon(f"{path}: {NO_DAEMON}") from None
        except BaseException:
            self._socket.close()
            raise
        self._held = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def send(self, request: bytes, descriptors: Sequence[int]) -> None:
        """Sends a request, and with it the descriptors 0, 1 and 2 of the command and its directory."""
        rights = struct.pack(f"{len(descriptors)}i", *descriptors)
        try:
            sent = self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            if sent < len(request):
                self._socket.sendall(request[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise Unread from None

    def signal(self, number: int) -> None:
        """Passes a signal on to the command. If the daemon is gone, the next read reports that."""
        try:
            self._socket.sendall(wire.signal(number))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def held(self) -> Optional[wire.Answer]:
        """An answer that has come already."""
        found = wire.answer(self._held)
        if found is None:
            return None
        self._held = self._held[found[1] :]
        return found[0]

    def read(self) -> None:
        """Reads received bytes, and waits for them if need be."""
        try:
            came = self._socket.recv(_READ_BYTES)
        except ConnectionResetError:
            # By unix(7), the close of a socket with unread bytes resets the connection.
            raise Unread from None
        if not came:
            raise Gone
        self._held += came

    def answer(self, deadline: Optional[float] = None) -> wire.Answer:
        """The next answer, until a time of the monotonic clock."""
        while True:
            found = self.held()
            if found is not None:
                return found
            if deadline is None:
                self.read()
            else:
                self._read_until(deadline)

    def _read_until(self, deadline: float) -> None:
        self._socket.settimeout(max(deadline - time.monotonic(), 1e-6))
        try:
            self.read()
        except socket.timeout:
            raise Late from None
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        """Closes the connection. The daemon terminates a command that still runs for it, and kills it five seconds
        later.
        """
        self._socket.close()


class Pool:
    """Connections to one socket that wait for a command. All of it is done by single operations of a deque,
    which threads need no lock for."""

    def __init__(self, path: str, uid: int) -> None:
        self.path = path
        self.uid = uid
        self._idle: deque[Connection] = deque()

    def take(self) -> Optional[Connection]:
        """Returns the most recently used connection, or None."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def connect(self) -> Connection:
        """A new one."""
        return Connection(self.path)

    def give_back(self, connection: Connection) -> None:
        """Retains a connection after its command has ended, unless there are enough or this process has another user by
        now.
        """
        if len(self._idle) < IDLE_MAX and self.uid == os.geteuid():
            self._idle.append(connection)
        else:
            connection.close()

    def clear(self) -> None:
        """Forgets all."""
        while True:
            connection = self.take()
            if connection is None:
                return
            connection.close()


# Pools by socket and by the user that connects to it: to the daemon a connection is that user's property.
_pools: dict[tuple[str, int], Pool] = {}


def pool(path: Optional[str]) -> Pool:
    """Returns the pool of a socket and of the present user. After a change of the user it drops the connections of the
    former one.
    """
    key = (wire.SOCKET if path is None else path, os.geteuid())
    found = _pools.get(key)
    if found is None:
        for other in list(_pools.values()):
            if other.uid != key[1]:
                other.clear()
        found = _pools.setdefault(key, Pool(*key))
    return found


def _forget() -> None:
    for each in list(_pools.values()):
        each.clear()


# The parent process owns them and goes on with them.
os.register_at_fork(after_in_child=_forget)
atexit.register(_forget)
