# SPDX-License-Identifier: MIT OR Apache-2.0
"""In the place of `oslo_rootwrap.client`, with one import changed.

    from roster_exec.rootwrap import Client      # was: from oslo_rootwrap.client import Client

Commands go through the host's daemon and by its policy: no process is started, no rootwrap.conf is read, and
threads do not wait for each other.
"""

import os
from collections.abc import Sequence
from subprocess import PIPE
from typing import Optional, Union

from . import wire
from .connection import pool
from .errors import NotExecutable, NotFound, Refused
from .run_command import Running, variables, words

# As oslo_rootwrap.cmd has them.
RC_UNAUTHORIZED = 99
RC_NOEXECFOUND = 96


class Client:
    """Runs commands as root. Any number of threads may share one."""

    def __init__(self, rootwrap_daemon_cmd: Sequence[str] = (), *, socket: str = wire.SOCKET) -> None:
        """The command that would start the daemon of oslo.rootwrap is not used."""
        self._socket = socket

    def execute(self, cmd: Sequence[str], stdin: Union[None, str, bytes] = None) -> list[Union[int, str]]:
        """The exit code, standard output and standard error of a command. It is [99, "", ""] if the policy does not
        allow the command, and [96, "", ""] if there is no executable. It is -N if the command died of signal N. Text is
        as from os.fsdecode, so that no byte is lost. An ExecError reports that the daemon is busy for some seconds,
        unreachable, or fails."""
        if not cmd:
            return [RC_UNAUTHORIZED, "", ""]
        data = os.fsencode(stdin) if stdin is not None else b""
        try:
            request = wire.request(b"", words(cmd), variables(None))
            running = _Running(pool(self._socket), None, PIPE, PIPE, memoryview(data), None)
            code = running.run(request, None)
        except Refused:
            return [RC_UNAUTHORIZED, "", ""]
        except (NotFound, NotExecutable):
            return [RC_NOEXECFOUND, "", ""]
        out, err = running.outputs()
        return [code, os.fsdecode(out or b""), os.fsdecode(err or b"")]


class _Running(Running):
    """A command with processes that may live on and hold its pipes, which must not block its caller."""

    after_end_s: Optional[float] = 0.5
