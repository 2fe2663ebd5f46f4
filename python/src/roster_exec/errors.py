"""Why a command did not run. Each is the exception, too, that `subprocess` raises for the like."""

import errno


class ExecError(OSError):
    """The command did not run, or how it ended is not known."""

    number = errno.EIO

    def __init__(self, what: str) -> None:
        super().__init__(self.number, what)


class Refused(ExecError, PermissionError):
    """No rule lets the caller run it."""

    number = errno.EPERM


class NotFound(ExecError, FileNotFoundError):
    """A rule does, and there is no such executable."""

    number = errno.ENOENT


class NotExecutable(ExecError, PermissionError):
    """A rule does, and the executable cannot be executed, or others could have changed it."""

    number = errno.EACCES


class Busy(ExecError):
    """As much runs as may at once; try later."""

    number = errno.EAGAIN


class Failed(ExecError):
    """The daemon could not find out whether it may run, could not start it, or went away."""


class NoDaemon(Failed, ConnectionError):
    """Nobody listens."""

    number = errno.ECONNREFUSED


# By the number in a frame of kind D. What a later daemon may say besides is a failure.
BY_WHY: dict[int, type[ExecError]] = {1: Refused, 2: NotFound, 3: NotExecutable, 4: Busy, 5: Failed}
