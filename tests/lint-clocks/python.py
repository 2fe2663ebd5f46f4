#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint `clocks in tests` for Python: `main.rs` beside it gives the reason, and covers Rust.

It finds readings of clocks, and limits of waits other than a number or constant of at least 30 s. 0 and None do not
limit a wait. A parameter with one of the names in LIMITS is judged at the calls of its function. Sleeps are out of
scope.

usage: tests/lint-clocks/python.py [ROOT]
"""

import ast
import pathlib
import re
import sys

# The shortest limit that a wait may have: longer than a busy machine delays a process.
LIMIT_MIN_S = 30
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime", "now", "utcnow", "today"}
# Names of parameters that bound a wait.
LIMITS = {"timeout", "deadline", "limit", "patience", "within"}
# Waits of libraries, with the position of their limit.
WAITS = {
    "acquire": 1, "alarm": 0, "communicate": 1, "join": 0, "select": 3, "setdefaulttimeout": 0, "setitimer": 1,
    "settimeout": 0, "timeout": 0, "wait": 0, "wait_for": 1,
}  # fmt: skip
FOLDERS = ["bench/tests", "crates/*/*/tests", "python/tests", "scripts/tests", "tests/system/python"]
EXCEPTIONS = "tests/lint-clocks/exceptions.txt"
EXCEPTION = re.compile(r"(.*?): (.*?): `(.*)`: *(\S.*)")
SHELL_TIMEOUT = re.compile(r"(?:^|[\n;&|(`])\s*(?:\S*/)?timeout(?:\s+(?:-\S+|[A-Z]+))*\s+([\d.]+)s?\b")


def called(node):
    """The last name of the called expression."""
    return getattr(node.func, "attr", getattr(node.func, "id", None))


def limits_of(function):
    """The parameters of a function that bound a wait: their positions at a call, and their defaults."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    bound = arguments[:1] and arguments[0].arg in ("self", "cls")
    defaults = dict(zip([argument.arg for argument in reversed(arguments)], reversed(function.args.defaults)))
    defaults |= dict(zip([argument.arg for argument in function.args.kwonlyargs], function.args.kw_defaults))
    positions = {argument.arg: at - bool(bound) for at, argument in enumerate(arguments)}
    positions |= {argument.arg: None for argument in function.args.kwonlyargs}
    return {name: (position, defaults.get(name)) for name, position in positions.items() if name in LIMITS}


class Finder(ast.NodeVisitor):
    """The findings of one file. `declared` has the functions of all files that bound a wait, with the position."""

    def __init__(self, tree, declared):
        self.found, self.waits = [], {**declared, **WAITS}
        self.functions, self.limits, self.expects_expiry = ["module"], set(), 0
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        self.constants = {getattr(target, "id", None): node.value for node in assigned for target in node.targets}
        self.visit(tree)

    def report(self, node, message):
        self.found.append((node.lineno, self.functions[-1], message))

    def number(self, node):
        """The value of a number, a constant of the file, or a calculation with them."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.number(self.constants[node.id])
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left), self.number(node.right)
            operation = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__"}.get(type(node.op))
            if None not in (left, right, operation):
                return getattr(float(left), operation)(float(right))
        return None

    def limit(self, node, name):
        passed_on = isinstance(node, ast.Name) and node.id in self.limits
        if self.expects_expiry or passed_on or isinstance(node, ast.Constant) and node.value is None:
            return
        seconds = self.number(node)
        if seconds is None:
            self.report(node, f"the limit of `{name}` is no number and no constant")
        elif 0 < seconds < LIMIT_MIN_S:
            self.report(node, f"`{name}` waits for at most {seconds} s, less than {LIMIT_MIN_S} s")

    def visit_FunctionDef(self, node):
        limits, outer = limits_of(node), self.limits
        self.functions.append(node.name)
        for _, default in limits.values():
            if default is not None:
                self.limit(default, node.name)
        self.limits = outer | set(limits)
        self.generic_visit(node)
        self.limits = outer
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_With(self, node):
        """`with pytest.raises(TimeoutExpired)` and the like: the expiry is the expected outcome."""
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        expected = [call.args for call in calls if called(call) in ("raises", "assertRaises", "suppress")]
        expects = any("timeout" in ast.unparse(one).lower() for errors in expected for one in errors)
        self.expects_expiry += expects
        self.generic_visit(node)
        self.expects_expiry -= expects

    visit_AsyncWith = visit_With

    def visit_ImportFrom(self, node):
        if node.module == "time" and any(name.name not in ("sleep", "strftime") for name in node.names):
            self.report(node, "imports a clock by its bare name")

    def visit_Attribute(self, node):
        if node.attr.removesuffix("_ns") in CLOCKS or ast.unparse(node) in ("time.time", "time.time_ns"):
            self.report(node, "reads a clock")
        self.generic_visit(node)

    def visit_Call(self, node):
        name = called(node)
        # `loop.time()`, and `time` under another name.
        if isinstance(node.func, ast.Attribute) and name in ("time", "time_ns") and not node.args:
            self.report(node, "reads a clock")
        position = self.waits.get(name)
        # `", ".join(parts)` takes no limit.
        of_text = name == "join" and node.args and self.number(node.args[0]) is None
        if position is not None and len(node.args) > position and not of_text:
            self.limit(node.args[position], name)
        for keyword in node.keywords:
            if keyword.arg == "timeout" or name in self.waits and keyword.arg in LIMITS:
                self.limit(keyword.value, name)
        self.generic_visit(node)

    def visit_Dict(self, node):
        """`run(**{"timeout": 5})`"""
        for key, value in zip(node.keys, node.values):
            if getattr(key, "value", None) == "timeout" and self.number(value) is not None:
                self.limit(value, "timeout")
        self.generic_visit(node)

    def command(self, node, text):
        if any(float(limit) < LIMIT_MIN_S for limit in SHELL_TIMEOUT.findall(text)):
            self.report(node, "timeout(1) limits a command to less than 30 s")

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.command(node, node.value)

    def visit_List(self, node):
        self.command(node, " ".join(str(getattr(word, "value", "-")) for word in node.elts))
        self.generic_visit(node)


def declared(trees):
    """The functions that bound a wait, with the position of the limit; None for one that calls name."""
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {function.name: position for function in functions for position, _ in limits_of(function).values()}


def findings(texts):
    """File, line, function, message and source line of each finding in sources by file: one for each line."""
    trees = {name: ast.parse(text) for name, text in texts.items()}
    waits = declared(trees.values())
    found = {}
    for name, tree in trees.items():
        lines = texts[name].splitlines()
        for line, function, message in sorted(Finder(tree, waits).found):
            found.setdefault((name, line), (name, line, function, message, lines[line - 1].strip()))
    return list(found.values())


def exceptions(text):
    """Line number, and file, function and source line, of each exception on Python: it accepts one finding."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            fields = EXCEPTION.fullmatch(line)
            if not fields:
                raise ValueError(f"{EXCEPTIONS}:{number}: expected FILE: FUNCTION: `SOURCE LINE`: REASON")
            if fields[1].endswith(".py"):
                found.append((number, fields.groups()[:3]))
    return found


def check(root):
    """The report on a tree: one line for each finding without an exception, and for each exception without one."""
    excepted = exceptions((root / EXCEPTIONS).read_text())
    paths = sorted(path for folder in FOLDERS for path in root.glob(f"{folder}/**/*.py"))
    report = []
    for name, line, function, message, text in findings({str(path.relative_to(root)): path.read_text() for path in paths}):
        accepting = [entry for entry in excepted if entry[1] == (name, function, text)]
        if accepting:
            excepted.remove(accepting[0])
        else:
            report.append(f"{name}:{line}: {function}: {message}: `{text}`")
    for line, (name, function, _) in excepted:
        report.append(f"{EXCEPTIONS}:{line}: {name}: {function}: the exception matches nothing. Remove it.")
    return report


if __name__ == "__main__":
    told = check(pathlib.Path(sys.argv[1] if sys.argv[1:] else "."))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    sys.exit(bool(told))
