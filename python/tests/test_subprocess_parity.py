# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster_exec.run` has the same results as `subprocess.run`."""

import os
import subprocess

import pytest

EVERYTHING = bytes(range(256)) * 5
SCRIPT = "printf 'out\\r\\n\\303\\251'; printf 'err' >&2; cat; exit 3"


def outcome(run, *args, **named):
    """The result or the exception, without the parts that show the function."""
    try:
        done = run(*args, **named)
    except Exception as error:
        shown = {name: getattr(error, name, None) for name in ("returncode", "output", "stderr", "cmd", "timeout")}
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ in ("builtins", "subprocess"))
        return kind, shown
    return done


def same(run, *args, **named):
    ours, theirs = outcome(run, *args, **named), outcome(subprocess.run, *args, **named)
    if isinstance(ours, subprocess.CompletedProcess):
        assert vars(ours) == vars(theirs)
    else:
        assert ours == theirs
    return ours


@pytest.mark.parametrize(
    "named",
    [
        {"capture_output": True, "input": EVERYTHING},
        {"capture_output": True, "input": bytearray(b"in")},
        {"capture_output": True, "input": memoryview(b"in")},
        {"capture_output": True, "input": b""},
        {"capture_output": True, "input": "in\u00e9", "text": True},
        {"capture_output": True, "input": "in", "universal_newlines": True},
        {"capture_output": True, "input": "in\u00e9", "encoding": "latin-1"},
        {"capture_output": True, "input": "\udcff", "encoding": "utf-8", "errors": "surrogateescape"},
        {"capture_output": True, "input": b"in", "check": True},
        {"capture_output": True, "stdin": subprocess.DEVNULL},
        {"capture_output": True, "stdin": subprocess.PIPE},
        {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "input": b"in"},
        {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "input": b"in"},
        {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "input": b"in"},
        {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL},
        {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "input": b"in", "check": True},
        {"capture_output": True, "input": b"in", "timeout": 60},
        # Wrong calls.
        {"capture_output": True, "input": b"in", "stdin": subprocess.PIPE},
        {"capture_output": True, "stdout": subprocess.PIPE},
        {"capture_output": True, "input": b"\xff", "cwd": "/no/such/folder"},
    ],
    ids=repr,
)
def test_the_result_is_the_same(run, named):
    same(run, ["/usr/bin/sh", "-c", SCRIPT], **named)


@pytest.mark.parametrize(
    "args",
    [
        "/usr/bin/true",
        ["/usr/bin/true"],
        b"/usr/bin/true",
        ("/usr/bin/sh", "-c", "kill -9 $$"),
        ["/usr/bin/sh", "-c", "kill -15 $$"],
        ["/usr/bin/sh", "-c", "exit 255"],
        ["/usr/bin/sh", b"-c", 'printf %s "$1"', "x", os.fsdecode(b"\xff")],
        ["/usr/bin/sh", "-c", "a\0b"],
    ],
    ids=repr,
)
def test_commands_are_the_same(run, args):
    same(run, args, capture_output=True)
    same(run, args, capture_output=True, check=True)


def test_what_was_written_before_a_timeout_is_told(run, tmp_path):
    wrote = tmp_path / "wrote"
    script = f"printf x; echo >> {wrote}; exec sleep 600"
    # On a machine that starts the shells too late: once more, with a longer timeout.
    for seconds in (0.5, 5, 60):
        wrote.write_text("")
        kind, shown = same(run, ["/usr/bin/sh", "-c", script], capture_output=True, timeout=seconds)
        if len(wrote.read_text()) == 2:
            break
    assert kind is subprocess.TimeoutExpired and shown["output"] == b"x"


def test_what_is_not_text_is_refused_as_input_of_text(run):
    for named in ({"input": b"x", "text": True}, {"input": "x"}):
        with pytest.raises(TypeError):
            run(["/usr/bin/cat"], **named)
    with pytest.raises(UnicodeDecodeError):
        run(["/usr/bin/sh", "-c", "printf '\\377'"], capture_output=True, encoding="utf-8")


def test_files_and_descriptors_are_passed(run, tmp_path):
    for who in (run, subprocess.run):
        path = tmp_path / "file"
        path.write_bytes(b"from a file")
        reader, writer = os.pipe()
        with open(path, "rb") as file:
            who(["/usr/bin/cat"], stdin=file, stdout=writer, check=True)
        os.close(writer)
        with open(reader, "rb") as pipe:
            assert pipe.read() == b"from a file"
        with open(path, "ab") as file:
            who(["/usr/bin/sh", "-c", "echo; echo more >&2"], stdout=file, stderr=file, check=True)
        assert path.read_bytes() == b"from a file\nmore\n"


def test_the_folder_is_the_callers_or_the_one_that_is_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pwd = ["/usr/bin/sh", "-c", "pwd -P"]
    for cwd in (None, "/usr", b"/usr", tmp_path):
        same(run, pwd, cwd=cwd, capture_output=True)


def test_much_passes_whole(run):
    data = os.urandom(1 << 20) * 40
    assert run(["/usr/bin/cat"], input=data, capture_output=True).stdout == data
    assert run(["/usr/bin/true"], input=data, capture_output=True).returncode == 0
