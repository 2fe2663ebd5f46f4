# SPDX-License-Identifier: MIT OR Apache-2.0
"""`run`: one command from its start to its end, with the arguments and the results of `subprocess.run`.

The command has the caller's descriptors, or pipes to this process; the daemon does not see the data in them.
"""

import fcntl
import locale
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import IO, Any, Optional, Union

from . import wire
from .connection import Connection, Gone, Late, Pool, Unread, pool
from .errors import BY_WHY, GONE_BEFORE_START, GONE_DURING_RUN, INVALID_REPLY, SOCKET_REFUSED, Busy, Failed

StrOrBytesPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Command = Union[StrOrBytesPath, Sequence[StrOrBytesPath]]
Stream = Union[None, int, IO[Any]]

# A Python that was built with old headers knows the kernel's number by no name.
O_PATH = getattr(os, "O_PATH", 0o10000000)
# The return code if a rule's timeout expired, as of timeout(1) and roster-exec.
TIME_OVER = 124
# Limits on the end of a killed command, and of a command after its caller was interrupted, before it is killed.
KILLED_TIME_S = 10.0
INTERRUPTED_TIME_S = 0.25
# The time for which a request is repeated if the daemon is busy, as roster-exec does.
BUSY_TIME_S = 5.0
BUSY_PAUSE_S = 0.02
# Bytes that a pipe holds; with a large pipe the two processes switch less often.
_LARGE_PIPE_BYTES = 1 << 20
_PIPE_BYTES = 64 << 10
# fcntl.F_SETPIPE_SZ, from Python 3.10 on.
_F_SETPIPE_SZ = 1031
# poll(2) takes the fewest system calls; eventlet does not provide it.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def run(
    args: Command,
    *,
    stdin: Stream = None,
    input: Union[None, str, bytes, bytearray, memoryview] = None,
    stdout: Stream = None,
    stderr: Stream = None,
    capture_output: bool = False,
    timeout: Optional[float] = None,
    check: bool = False,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    universal_newlines: Optional[bool] = None,
    env: Optional[Mapping[Any, Any]] = None,
    cwd: Optional[StrOrBytesPath] = None,
    user: Optional[str] = None,
    socket: Optional[str] = None,
) -> "CompletedProcess[Any]":
    """Runs a command as root, or as `user`, if the policy of this host lets the caller.

    All else is as in `subprocess.run`, without a shell. Of `env` the command gets what its rule keeps. When
    `timeout` is over the command is killed with all that it started; when its rule's own time is, its return
    code is `TIME_OVER`. `socket` is the daemon's, if it is another than /run/roster/exec.

    Raises `Refused`, `NotFound`, `NotExecutable`, `Busy`, `NoDaemon` or `Failed` where it does not run, all of
    which are `ExecError`; `TimeoutExpired` and `CalledProcessError` as `subprocess` does.
    """
    if input is not None and stdin is not None:
        raise ValueError("stdin and input arguments may not both be used.")
    if capture_output and (stdout is not None or stderr is not None):
        raise ValueError("stdout and stderr arguments may not be used with capture_output.")
    if capture_output:
        stdout = stderr = PIPE
    coder = _Coder(text or universal_newlines, encoding, errors)
    deadline = None if timeout is None else time.monotonic() + timeout
    if user is not None and not user:
        # To the daemon it would be none: root.
        raise ValueError("the name of the user is empty")
    request = wire.request((user or "").encode(), words(args), variables(env))
    running = Running(pool(socket), stdin, stdout, stderr, coder.encoded(input), cwd)
    try:
        code = running.run(request, deadline)
    except Late:
        out, err = running.outputs()
        # In bytes, and None without output, as in `subprocess`.
        raise TimeoutExpired(args, timeout or 0, output=out or None, stderr=err or None) from None
    told = [coder.decoded(output) for output in running.outputs()]
    if check and code:
        raise CalledProcessError(code, args, *told)
    return CompletedProcess(args, code, *told)


def words(args: Command) -> list[bytes]:
    """A command as the wire has it; a single string is one without arguments."""
    if isinstance(args, (str, bytes, os.PathLike)):
        args = [args]
    return [os.fsencode(word) for word in args]


def variables(env: Optional[Mapping[Any, Any]]) -> list[bytes]:
    """An environment as the wire has it: this process's, if none is given."""
    if env is None:
        return [name + b"=" + value for name, value in os.environb.items()]
    found = []
    for name, value in env.items():
        name = os.fsencode(name)
        if b"=" in name:
            raise ValueError("illegal environment variable name")
        found.append(name + b"=" + os.fsencode(value))
    return found


class _Coder:
    """Converts between text and bytes as `subprocess` does, or does nothing if bytes are requested."""

    def __init__(self, text: Optional[bool], encoding: Optional[str], errors: Optional[str]) -> None:
        self._is_text = bool(text or encoding or errors)
        self._encoding = encoding or (locale.getpreferredencoding(False) if self._is_text else "")
        self._errors = errors or "strict"

    def encoded(self, data: Union[None, str, bytes, bytearray, memoryview]) -> Optional[memoryview]:
        if data is None:
            return None
        if self._is_text:
            if not isinstance(data, str):
                raise TypeError(f"input must be str, not {type(data).__name__}, in text mode")
            return memoryview(data.encode(self._encoding, self._errors))
        if isinstance(data, str):
            raise TypeError("input must be bytes, not str, except in text mode")
        return memoryview(data).cast("B")

    def decoded(self, data: Optional[bytes]) -> Union[None, str, bytes]:
        if data is None or not self._is_text:
            return data
        return data.decode(self._encoding, self._errors).replace("\r\n", "\n").replace("\r", "\n")


class Running:
    """One command: its streams, and its connection while it runs."""

    # The time to wait for output after the command has ended, if a process that it started holds the pipe.
    after_end_s: Optional[float] = None

    def __init__(
        self,
        connections: Pool,
        stdin: Stream,
        stdout: Stream,
        stderr: Stream,
        input: Optional[memoryview],
        cwd: Optional[StrOrBytesPath],
    ) -> None:
        self._pool = connections
        self._connection: Optional[Connection] = None
        self._ended: Optional[wire.Ended] = None
        # Descriptors that go with the request. This process closes them then.
        self._handed: list[int] = []
        self._input = input
        self._writer: Optional[int] = None
        # Received parts by our end of the pipe, in the order of stdout and stderr.
        self._readers: dict[int, list[bytes]] = {}
        self._outputs: dict[int, list[bytes]] = {}
        try:
            self._descriptors = (*self._open(stdin, stdout, stderr), self._folder(cwd))
        except BaseException:
            self.close()
            raise

    def run(self, request: bytes, deadline: Optional[float]) -> int:
        """Returns the return code. Raises `Late` when the command was killed after its timeout."""
        gone = GONE_BEFORE_START
        try:
            self._begin(request, deadline)
            gone = GONE_DURING_RUN
            self._close_handed()
            try:
                self._pump(deadline)
            except Late:
                self._kill()
                raise
            except KeyboardInterrupt:
                self._interrupt()
                raise
            connection, self._connection = self._connection, None
            if connection is not None:
                self._pool.give_back(connection)
        except Gone:
            raise Failed(gone) from None
        except wire.Malformed:
            raise Failed(INVALID_REPLY) from None
        finally:
            self.close()
        return self._code()

    def outputs(self) -> tuple[Optional[bytes], Optional[bytes]]:
        """The output of stdout and stderr, if it was requested."""
        out, err = (self._outputs.get(number) for number in (1, 2))
        return (None if out is None else b"".join(out), None if err is None else b"".join(err))

    def close(self) -> None:
        """Closes all that is still open. The daemon terminates a command that still runs."""
        self._close_handed()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._end_input()
        for reader in list(self._readers):
            self._end_output(reader)

    # Streams.

    def _open(self, stdin: Stream, stdout: Stream, stderr: Stream) -> tuple[int, int, int]:
        if self._input is not None:
            stdin = PIPE
        elif stdin == PIPE:
            self._input = memoryview(b"")
        theirs_in = self._stream(0, stdin)
        theirs_out = self._stream(1, stdout)
        theirs_err = theirs_out if stderr == STDOUT else self._stream(2, stderr)
        return theirs_in, theirs_out, theirs_err

    def _stream(self, number: int, stream: Stream) -> int:
        """Returns the command's end."""
        if stream == PIPE:
            return self._pipe(number)
        # A caller without the descriptor has none to pass on.
        if stream == DEVNULL or (stream is None and not _is_open(number)):
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            self._handed.append(null)
            return null
        if stream is None:
            return number
        return stream if isinstance(stream, int) else stream.fileno()

    def _pipe(self, number: int) -> int:
        reader, writer = os.pipe()
        ours, theirs = (writer, reader) if number == 0 else (reader, writer)
        self._handed.append(theirs)
        os.set_blocking(ours, False)
        if number == 0:
            self._writer = ours
            if self._input is not None and len(self._input) > _PIPE_BYTES:
                _make_large(ours)
        else:
            self._readers[ours] = self._outputs[number] = []
        return theirs

    def _folder(self, cwd: Optional[StrOrBytesPath]) -> int:
        flags = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            folder = os.open("." if cwd is None else cwd, flags)
        except OSError:
            if cwd is not None:
                raise
            # The process is in the directory even if it may not enter it any more.
            folder = os.open("/proc/self/cwd", flags)
        self._handed.append(folder)
        return folder

    def _close_handed(self) -> None:
        while self._handed:
            os.close(self._handed.pop())

    def _end_input(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def _end_output(self, reader: int) -> None:
        os.close(reader)
        del self._readers[reader]

    # The command.

    def _begin(self, request: bytes, deadline: Optional[float]) -> None:
        """Requests the command, for some seconds if the daemon is busy, and returns when it runs."""
        until = time.monotonic() + BUSY_TIME_S
        error: Exception
        while True:
            try:
                answer = self._asked(request, deadline)
            except PermissionError as denied:
                # The daemon closes its socket to a user while too many of the user's connections hang.
                error, is_busy = PermissionError(denied.errno, f"{self._pool.path}: {SOCKET_REFUSED}"), True
            else:
                if not isinstance(answer, wire.Denied):
                    return self._take(answer)
                error = BY_WHY.get(answer.why, Failed)(answer.words)
                is_busy = isinstance(error, Busy)
            if not is_busy or time.monotonic() >= until:
                raise error
            if deadline is not None and time.monotonic() >= deadline:
                raise Late
            time.sleep(BUSY_PAUSE_S)

    def _asked(self, request: bytes, deadline: Optional[float]) -> wire.Answer:
        """The first answer. A connection that the daemon denies a command on is free for others."""
        kept = self._pool.take()
        while True:
            self._connection = kept or self._pool.connect()
            try:
                self._connection.send(request, self._descriptors)
                answer = self._connection.answer(deadline)
                break
            except Unread:
                # It has ended for want of requests. Had it been read, the command might have begun.
                self._connection.close()
                self._connection = None
                if kept is None:
                    raise
                kept = self._pool.take()
        if isinstance(answer, wire.Denied):
            connection, self._connection = self._connection, None
            self._pool.give_back(connection)
        return answer

    def _take(self, answer: wire.Answer) -> None:
        if isinstance(answer, wire.Ended):
            self._ended = answer
        elif isinstance(answer, wire.Stopped) and self._connection is not None:
            # A library does not stop with it, so the command is continued.
            self._connection.signal(signal.SIGCONT)

    def _pump(self, deadline: Optional[float]) -> None:
        """Passes input and output on until the command and both of them have ended."""
        if self._connection is None:
            return
        if self._writer is None and not self._readers:
            while self._ended is None:
                self._take(self._connection.answer(deadline))
            return
        with _Selector() as selector:
            for reader in self._readers:
                selector.register(reader, selectors.EVENT_READ)
            if self._writer is not None:
                selector.register(self._writer, selectors.EVENT_WRITE)
            selector.register(self._connection, selectors.EVENT_READ)
            self._take_held(selector)
            while self._ended is None:
                self._turn(selector, deadline)
            try:
                self._drain(selector, deadline)
            except Late:
                # Later output of processes that it left behind does not count as its output.
                if self.after_end_s is None:
                    raise

    def _drain(self, selector: Any, deadline: Optional[float]) -> None:
        if self.after_end_s is not None:
            deadline = time.monotonic() + self.after_end_s
        while self._readers or self._writer is not None:
            self._turn(selector, deadline)

    def _turn(self, selector: Any, deadline: Optional[float]) -> None:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        ready = selector.select(left)
        if not ready and left == 0:
            raise Late
        for key, _ in ready:
            self._serve(selector, key.fileobj)

    def _serve(self, selector: Any, ready: Any) -> None:
        if ready is self._connection:
            self._connection.read()
            self._take_held(selector)
        elif ready == self._writer:
            if not self._write():
                selector.unregister(ready)
                self._end_input()
        elif not self._read(ready):
            selector.unregister(ready)
            self._end_output(ready)

    def _take_held(self, selector: Any) -> None:
        """Handles replies that have come. The pipes may go on, with processes that the command started."""
        while self._connection is not None and self._ended is None:
            answer = self._connection.held()
            if answer is None:
                return
            self._take(answer)
            if self._ended is not None:
                selector.unregister(self._connection)

    def _write(self) -> bool:
        """Writes some input; returns whether there is more."""
        if self._writer is None or not self._input:
            return False
        try:
            self._input = self._input[os.write(self._writer, self._input[:_LARGE_PIPE_BYTES]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self._input)

    def _read(self, reader: int) -> bool:
        """Takes some output; whether there may be more."""
        try:
            came = os.read(reader, _LARGE_PIPE_BYTES)
        except BlockingIOError:
            return True
        if came:
            parts = self._readers[reader]
            if not parts and len(came) >= _PIPE_BYTES:
                _make_large(reader)
            parts.append(came)
        return bool(came)

    def _kill(self) -> None:
        """Kills the command, with all that it started. The pipes may go on, with processes that left its group."""
        if self._connection is None or self._ended is not None:
            return
        self._connection.signal(signal.SIGKILL)
        deadline = time.monotonic() + KILLED_TIME_S
        try:
            while self._ended is None:
                self._take(self._connection.answer(deadline))
        except (Late, Gone):
            return
        connection, self._connection = self._connection, None
        self._pool.give_back(connection)

    def _interrupt(self) -> None:
        """Sends SIGINT as the terminal would have done; then kills the command."""
        if self._connection is None:
            return
        self._connection.signal(signal.SIGINT)
        try:
            while self._ended is None:
                self._take(self._connection.answer(time.monotonic() + INTERRUPTED_TIME_S))
        except (Late, Gone):
            self._kill()

    def _code(self) -> int:
        if self._ended is None or self._ended.how > 2:
            raise Failed(INVALID_REPLY)
        return (self._ended.value, -self._ended.value, TIME_OVER)[self._ended.how]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _make_large(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _LARGE_PIPE_BYTES)
    except OSError:
        # If the system does not allow this size, the pipe keeps its size.
        pass
