#!/usr/bin/env python3
"""The lint `clocks in tests` for Python: `main.rs` beside it says why, and covers Rust.

It finds assertions, and conditions of loops and branches, on times that were read from a clock, and limits of waits
below 30 s. It follows values by name within a function.

usage: tests/lint-clocks/python.py [ROOT]
"""

import ast
import pathlib
import sys

# The shortest limit that a wait may have: longer than a busy machine delays a process.
LIMIT_MIN_S = 30
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
# Waits, with the position of their limit; its name is `timeout` or `seconds`.
WAITS = {"communicate": 1, "eventually": 2, "join": 0, "run": None, "settimeout": 0, "wait": 0}
LIMITS = {"timeout", "seconds"}
PATTERNS = ["python/tests/*.py", "crates/*/tests/*.py", "tests/system/python/*.py"]
EXCEPTIONS = "tests/lint-clocks/exceptions-python.txt"


def reads_clock(node, times):
    """Whether an expression reads a clock, or names a time that was read."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in times:
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr in CLOCKS and getattr(part.func.value, "id", None) == "time":
                return True
    return False


def number(node):
    return node.value if isinstance(node, ast.Constant) and type(node.value) in (int, float) else None


class Function(ast.NodeVisitor):
    """The findings of one function, or of a file outside of its functions."""

    def __init__(self, body):
        self.found, self.times, self.expects_expiry = [], set(), 0
        size = -1
        while size != len(self.times):
            size = len(self.times)
            for node in body:
                self._learn(node)
        for node in body:
            self.visit(node)

    def _learn(self, node):
        for part in ast.walk(node):
            if isinstance(part, (ast.Assign, ast.AugAssign)) and reads_clock(part.value, self.times):
                for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                    self.times.update(name.id for name in ast.walk(target) if isinstance(name, ast.Name))

    def visit_FunctionDef(self, node):
        """Each is looked at alone; here are the limits that it sets when its caller names none."""
        names = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        for name, default in zip(names, node.args.defaults):
            if name.arg in LIMITS:
                self._limit(default, node.name)

    def visit_Assert(self, node):
        if reads_clock(node.test, self.times):
            self.found.append((node.lineno, "the assertion depends on a clock"))
        self.generic_visit(node)

    def visit_While(self, node):
        if reads_clock(node.test, self.times):
            self.found.append((node.lineno, "the end of the loop depends on a clock"))
        self.generic_visit(node)

    def visit_If(self, node):
        if reads_clock(node.test, self.times):
            self.found.append((node.lineno, "the branch depends on a clock"))
        self.generic_visit(node)

    def visit_With(self, node):
        """`with pytest.raises(…)`, `with contextlib.suppress(…)`: the wait may run into its limit."""
        expects = any(
            isinstance(item.context_expr, ast.Call) and getattr(item.context_expr.func, "attr", None) in ("raises", "suppress")
            for item in node.items
        )
        self.expects_expiry += expects
        self.generic_visit(node)
        self.expects_expiry -= expects

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in WAITS and not self.expects_expiry:
            position = WAITS[name]
            if position is not None and len(node.args) > position:
                self._limit(node.args[position], name)
            for keyword in node.keywords:
                if keyword.arg in LIMITS:
                    self._limit(keyword.value, name)
        self.generic_visit(node)

    def _limit(self, node, name):
        seconds = number(node)
        if seconds is not None and seconds < LIMIT_MIN_S:
            self.found.append((node.lineno, f"`{name}` waits for at most {seconds} s, less than {LIMIT_MIN_S} s"))


def findings(text):
    """Line, function and message of each finding in a source."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parts = [("module", tree.body)] + [(node.name, node.body) for node in functions]
    return sorted((line, name, message) for name, body in parts for line, message in Function(body).found)


def exceptions(text):
    """File and function of each line `FILE: FUNCTION: REASON`."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            fields = [field.strip() for field in line.split(": ", 2)]
            if len(fields) != 3 or not fields[2]:
                raise ValueError(f"{EXCEPTIONS}:{number}: expected FILE: FUNCTION: REASON")
            found[fields[0], fields[1]] = number
    return found


def check(root):
    """The report on a tree: one line for each finding without an exception, and for each exception without one."""
    excepted = exceptions((root / EXCEPTIONS).read_text())
    used, report = set(), []
    for path in sorted(path for pattern in PATTERNS for path in root.glob(pattern)):
        name = str(path.relative_to(root))
        for line, function, message in findings(path.read_text()):
            if (name, function) in excepted:
                used.add((name, function))
            else:
                report.append(f"{name}:{line}: {function}: {message}")
    for key, line in excepted.items():
        if key not in used:
            report.append(f"{EXCEPTIONS}:{line}: {key[0]}: {key[1]}: the exception matches nothing. Remove it.")
    return report


if __name__ == "__main__":
    told = check(pathlib.Path(sys.argv[1] if sys.argv[1:] else "."))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    sys.exit(bool(told))
