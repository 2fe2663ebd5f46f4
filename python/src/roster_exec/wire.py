# SPDX-License-Identifier: MIT OR Apache-2.0
"""The frames between a client and the daemon, as bytes: docs/internals/exec-protocol.md. Knows no sockets."""

import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

SOCKET = "/run/roster/exec"
REQUEST_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = 4096
STRINGS_MAX = 1 << 16

_HEADER = struct.Struct("<4sI")
_COUNTS = struct.Struct("<4sIII")
_NUMBER = struct.Struct("<I")
_ENDED = struct.Struct("<II")
_MAGIC = b"RXQ1"
_KINDS = {b"D\0\0\0", b"S\0\0\0", b"P\0\0\0", b"E\0\0\0"}


class Malformed(ValueError):
    """The daemon sent an invalid reply."""


class Denied(NamedTuple):
    """The command does not run: the number of the reason, and a message."""

    why: int
    words: str


class Started(NamedTuple):
    """It runs."""

    pid: int


class Stopped(NamedTuple):
    """It was stopped by a signal, on a terminal."""

    signal: int


class Ended(NamedTuple):
    """It has ended: 0 and its status, 1 and the signal that it died of, or 2 after its timeout."""

    how: int
    value: int


Answer = Union[Denied, Started, Stopped, Ended]


def request(user: bytes, words: Sequence[bytes], variables: Sequence[bytes]) -> bytes:
    """Encodes a request, header included. Strings have no NUL, and there is at least one argument."""
    if not words:
        raise ValueError("the command is missing")
    strings = (*words, *variables)
    if b"\0" in user or b"\0" in b"".join(strings):
        raise ValueError("embedded null byte")
    parts = [user]
    for string in strings:
        parts += (_NUMBER.pack(len(string)), string)
    body = b"".join(parts)
    length = _COUNTS.size + len(body)
    if length > REQUEST_BYTES_MAX or len(words) > STRINGS_MAX or len(variables) > STRINGS_MAX:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    counts = _COUNTS.pack(_MAGIC, len(words), len(variables), len(user))
    return _HEADER.pack(b"R\0\0\0", length) + counts + body


def signal(number: int) -> bytes:
    """A signal for the command's process group."""
    return _HEADER.pack(b"K\0\0\0", _NUMBER.size) + _NUMBER.pack(number)


def answer(held: bytes) -> Optional[tuple[Answer, int]]:
    """The first reply in the received bytes, and its length; None if it is not whole."""
    if len(held) < _HEADER.size:
        return None
    kind, length = _HEADER.unpack_from(held)
    if kind not in _KINDS or length > ANSWER_BYTES_MAX:
        raise Malformed("invalid header of a reply")
    end = _HEADER.size + length
    if len(held) < end:
        return None
    return _answer(kind[:1], held[_HEADER.size : end]), end


def _answer(kind: bytes, body: bytes) -> Answer:
    try:
        if kind == b"S":
            return Started(*_NUMBER.unpack(body))
        if kind == b"E":
            return Ended(*_ENDED.unpack(body))
        if kind == b"P":
            return Stopped(*_NUMBER.unpack(body))
        (why,) = _NUMBER.unpack_from(body)
        return Denied(why, body[_NUMBER.size :].decode("utf-8", "replace"))
    except struct.error:
        raise Malformed("invalid length of a reply") from None
