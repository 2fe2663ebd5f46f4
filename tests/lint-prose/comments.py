#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint `comments`: the head of a module names a neighbour or a limit, and a documentation comment names its subject.

The head of a module says the module's part and its limits. It therefore has a negation ("not", "only", "without"), or
names another module, crate or type in a code span or a link. Tests, fuzz targets, benchmarks and modules of fewer than
40 lines may be without both.

No documentation comment opens with a pronoun or a question word. "Whether" may open a flag or a predicate.

usage: tests/lint-prose/comments.py; exit status 1 with findings
"""

import pathlib
import re
import sys

import prose

HEAD_LINES_MIN = 40
LIMIT = re.compile(r"\b(?:not|never|no|nor|neither|nothing|none|without|only|cannot|elsewhere)\b", re.IGNORECASE)
CODE = re.compile(r"`([^`]+)`|\]\(([\w:]+)\)")
TYPE = re.compile(r"[A-Z][a-z0-9]+[A-Za-z0-9]*")
DOCUMENTATION = re.compile(r"\s*(//[/!])(?!/) ?(.*)")
OPENING = re.compile(r"[`\[(*\"]*([A-Za-z]+)")
PRONOUNS = frozenset(
    "it its he his him she her they their them we our us this these that those what which who whom whose where when why how".split()
)


def module_name(name):
    """The name of a source as other modules write it."""
    path = pathlib.PurePosixPath(name)
    if path.stem not in ("mod", "lib", "main"):
        return path.stem
    parents = [part for part in path.parts[:-1] if part != "src"]
    return parents[-1].replace("-", "_") if parents else path.stem


def module_names(names):
    """The names of all modules and crates."""
    found = set()
    for name in names:
        if name.endswith(".rs"):
            found.add(module_name(name))
        if name.startswith("crates/"):
            parts = name.split("/")
            crate = parts[2] if parts[1] != "roster" else "roster"
            found.update((crate.replace("-", "_"), "roster_" + crate.replace("-", "_")))
    return found


def is_test(name):
    parts = name.split("/")
    return parts[0] in ("tests", "fuzz", "bench") or not {"tests", "benches"}.isdisjoint(parts) or parts[-1] == "tests.rs"


def head(text):
    """The documentation of a module, as one line of text, and its first line number."""
    lines, first = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("//!"):
            lines.append(line[3:].strip())
            first = first or number
        elif lines:
            break
        elif line.strip() and not line.startswith(("//", "#!")):
            break
    return " ".join(lines), first


def names_neighbour(text, own, modules):
    for found in CODE.finditer(text):
        for word in re.split(r"[^\w-]+", found[1] or found[2]):
            if TYPE.fullmatch(word) or word.replace("-", "_") in modules - {own}:
                return True
    return False


def head_findings(name, text, modules):
    """The finding about the head of a module, if there is one."""
    if is_test(name) or text.count("\n") < HEAD_LINES_MIN:
        return
    found, line = head(text)
    if not found:
        yield f"{name}:1: the module has no head. Write `//!` with its part, its limits and its neighbours."
    elif not LIMIT.search(found) and not names_neighbour(found, module_name(name), modules):
        yield f"{name}:{line}: the head names neither a limit nor a neighbour. Name the module that does the rest. {found[:120]}"


def opening_findings(name, text):
    """Documentation comments that open with a pronoun or a question word."""
    before = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = DOCUMENTATION.match(line)
        marker = found[1] if found else ""
        if marker and marker != before and (word := OPENING.match(found[2])) and word[1].lower() in PRONOUNS:
            yield f'{name}:{number}: the comment opens with "{word[1]}". Write the noun. {found[2][:120]}'
        before = marker


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    names = [name for name in prose.tracked(root) if name.endswith(".rs")]
    modules, report = module_names(names), []
    for name in names:
        text = (root / name).read_text(errors="replace")
        report += [*head_findings(name, text, modules), *opening_findings(name, text)]
    print(*report, sep="\n", end="\n" if report else "", file=sys.stderr)
    return bool(report)


if __name__ == "__main__":
    sys.exit(main())
