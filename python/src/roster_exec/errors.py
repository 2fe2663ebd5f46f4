# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reasons for which a command did not run. Each is also the exception that `subprocess` raises in a similar case."""

import errno


class ExecError(OSError):
    """The command did not run, or its end is not known."""

    number = errno.EIO

    def __init__(self, what: str) -> None:
        super().__init__(self.number, what)


class Refused(ExecError, PermissionError):
    """No rule allows the caller to run it."""

    number = errno.EPERM


class NotFound(ExecError, FileNotFoundError):
    """A rule allows it, and there is no such executable."""

    number = errno.ENOENT


class NotExecutable(ExecError, PermissionError):
    """A rule allows it, and the executable cannot be executed, or others could have changed it."""

    number = errno.EACCES


class Busy(ExecError):
    """Too many commands run; try later."""

    number = errno.EAGAIN


class Failed(ExecError):
    """The daemon could not evaluate the request, could not start the command, or went away."""


class NoDaemon(Failed, ConnectionError):
    """No daemon listens at the socket."""

    number = errno.ECONNREFUSED


# Messages with codes of docs/reference/messages.md. Messages of the daemon bring their own code.
NO_DAEMON = "no daemon listens. Write /etc/roster/exec.toml, then run systemctl start roster-exec.socket. [RST-7091]"
SOCKET_REFUSED = "the socket refuses this user. Correct the mode of the socket, or try again later. [RST-7092]"
GONE_BEFORE_START = (
    "connection lost before the daemon reported a start. Check whether the command ran, then try again. [RST-7093]"
)
GONE_DURING_RUN = (
    "connection lost while the command ran, so its status is unknown. Check the effect of the command. [RST-7094]"
)
INVALID_REPLY = (
    "protocol error: invalid reply from roster-rootwrap-daemon. Install client and daemon of one version. [RST-7095]"
)

# By the number in a frame of kind D. Any other number of a later daemon is a failure.
BY_WHY: dict[int, type[ExecError]] = {1: Refused, 2: NotFound, 3: NotExecutable, 4: Busy, 5: Failed}
