#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint `links`: each relative link in a Markdown file leads to a file, and to a heading or anchor in it.

usage: tests/lint-prose/links.py; exit status 1 with findings
"""

import os
import pathlib
import re
import subprocess
import sys

import sentences

LEFT_OUT = "scripts/advisory-db/crates/"
FENCE = re.compile(r"(?ms)^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[^\n]*$|\Z)")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)?)>?(?:\s+[\"'][^)]*)?\)")
DEFINITION = re.compile(r"(?m)^ {0,3}\[([^\]]+)\]:\s*<?(\S+?)>?(?:\s|$)")
REFERENCE = re.compile(r"\[[^\[\]]+\]\[([^\[\]]+)\]")
HEADING = re.compile(r"(?m)^ {0,3}#{1,6}\s+(.+?)(?:\s+#+)?\s*$|^(\S.*)\n(?:=+|-{3,})\s*$")
ANCHOR = re.compile(r"<[^<>]*\b(?:id|name)=[\"']([^\"']+)[\"']")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def blank(found):
    return re.sub(r"[^\n]", " ", found[0])


def without_code(text):
    """The text with blanks for code, so that line numbers stay."""
    return sentences.CODE.sub(blank, re.sub(r"(?s)<!--.*?-->", blank, FENCE.sub(blank, text)))


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    """The anchors of a Markdown text. A heading that comes again has a number."""
    text = FENCE.sub(blank, text)
    found, seen = set(ANCHOR.findall(text)), {}
    for heading in HEADING.finditer(text):
        name = slug(heading[1] or heading[2])
        seen[name] = seen.get(name, -1) + 1
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
    return found


def links(text):
    """Line and target of each link, and line and None of each reference without a definition."""
    text = without_code(text)
    defined = {name.lower() for name, _ in DEFINITION.findall(text)}
    for found in LINK.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1]
    for found in DEFINITION.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[2]
    for found in REFERENCE.finditer(text):
        if found[1].lower() not in defined and not found[1].isdigit():
            yield text.count("\n", 0, found.start()) + 1, None


def findings(pages, names):
    """The report on Markdown texts by name; `names` are the files of the tree."""
    directories = {name[: at.start()] for name in names for at in re.finditer("/", name)} | {"."}
    report = []
    for name, text in sorted(pages.items()):
        for line, target in links(text):
            if target is None:
                report.append(f"{name}:{line}: a reference without a definition. Write [name]: TARGET.")
                continue
            if SCHEME.match(target) or target.startswith("//"):
                continue
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if file not in names and file not in directories:
                report.append(f"{name}:{line}: {target}: no such file. Name a file of the tree, relative to this page.")
            elif anchor and file in pages and anchor not in anchors(pages[file]):
                report.append(f"{name}:{line}: {target}: {file} has no such heading. Name one of its headings.")
    return report


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    names = {name for name in listed if name and (root / name).is_file()}
    pages = {name: (root / name).read_text() for name in names if name.endswith(".md") and not name.startswith(LEFT_OUT)}
    report = findings(pages, names)
    print(*report, sep="\n", end="\n" if report else "", file=sys.stderr)
    return bool(report)


if __name__ == "__main__":
    sys.exit(main())
