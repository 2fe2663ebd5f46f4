"""Connections to the daemon, kept for the next command and shared by all threads of a process."""

import atexit
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Optional

from . import wire
from .errors import Busy, NoDaemon

# Of connections that wait for a command; the daemon has 256 for a user.
IDLE_MAX = 64
# In which the daemon has to take what it is sent.
SEND_TIME_S = 10
# What is read at once: more than the answers to a command have.
_READ_BYTES = 8192
_TIME = struct.Struct("@ll")


class Gone(Exception):
    """The daemon has closed the connection."""


class Unread(Gone):
    """And it has not read all of what it was sent: by a request nothing was started."""


class Late(Exception):
    """No answer came in time."""


class Connection:
    """One connection, which has one command at a time."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Not settimeout: every receive would have to ask whether something has come.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(SEND_TIME_S, 0))
            self._socket.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            self._socket.close()
            raise NoDaemon(f"nobody listens on {path}: is roster-rootwrap-daemon --native running?") from None
        except PermissionError:
            self._socket.close()
            # The daemon closes its socket to a user of whom too many connections hang.
            raise Busy(f"{path}: connect: permission denied") from None
        except BaseException:
            self._socket.close()
            raise
        self._held = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def send(self, request: bytes, descriptors: Sequence[int]) -> None:
        """Sends a request, and with it the descriptors 0, 1 and 2 of the command and its folder."""
        rights = struct.pack(f"{len(descriptors)}i", *descriptors)
        try:
            sent = self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            if sent < len(request):
                self._socket.sendall(request[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise Unread from None

    def signal(self, number: int) -> None:
        """Passes a signal on to the command. Where the daemon is gone, the answer tells."""
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
        """Takes what has come, and waits for it if need be."""
        try:
            came = self._socket.recv(_READ_BYTES)
        except ConnectionResetError:
            # As unix(7) has it: who closes a socket in which something lies unread resets the connection.
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
        """What still runs for it is told to end, and killed five seconds later."""
        self._socket.close()


class Pool:
    """Connections to one socket that wait for a command. All of it is done by single operations of a deque,
    which threads need no lock for."""

    def __init__(self, path: str, uid: int) -> None:
        self.path = path
        self.uid = uid
        self._idle: deque[Connection] = deque()

    def take(self) -> Optional[Connection]:
        """One that was kept, the last that was used first."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def connect(self) -> Connection:
        """A new one."""
        return Connection(self.path)

    def give_back(self, connection: Connection) -> None:
        """Keeps one whose command has ended, unless there are enough, or we are somebody else by now."""
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


# Of a socket and the user who connects to it: to the daemon a connection is that user's.
_pools: dict[tuple[str, int], Pool] = {}


def pool(path: Optional[str]) -> Pool:
    """The one of a socket, and of who we are now. Who becomes another user keeps nothing of the former one."""
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


# They are the parent's, which goes on with them.
os.register_at_fork(after_in_child=_forget)
atexit.register(_forget)
