# SPDX-License-Identifier: MIT OR Apache-2.0
"""The prose of a file as pieces: paragraphs, list items, table cells, comments, messages in Rust, package descriptions.

A piece keeps its line ends, so that a sentence has a line number. Code blocks, headings and the strings of tests are
left out.
"""

import re
from typing import NamedTuple


class Piece(NamedTuple):
    line: int
    kind: str  # "paragraph", "item", "cell" or "message"
    text: str
    alone: bool = False  # a reader sees it without the text before it


FENCE = re.compile(r"^\s*(```+|~~~+)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?=\S)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s")
DELIMITERS = re.compile(r"^[\s|:-]*--[\s|:-]*$")


def markdown(text, first=1, alone=False):
    """The pieces of a Markdown text that begins at line `first`."""
    text = re.sub(r"(?s)<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text)
    fence, lines, start, kind = None, [], first, "paragraph"
    in_list = False

    def flush():
        nonlocal lines, kind
        if lines:
            yield Piece(start, kind, "\n".join(lines), alone)
        lines, kind = [], "paragraph"

    rows = text.split("\n")
    for number, (line, following) in enumerate(zip(rows, [*rows[1:], ""]), first):
        mark = FENCE.match(line)
        if mark or fence:
            yield from flush()
            if fence is None:
                fence = mark[1][:3]
            elif mark and mark[1].startswith(fence):
                fence = None
            continue
        stripped = line.strip()
        if lines and kind != "item" and re.fullmatch(r"=+|-{3,}", stripped):
            lines = []  # the line above is a heading
            continue
        indented = line.startswith("    ") and not lines and not in_list
        if not stripped or stripped.startswith("#") or DEFINITION.match(line) or indented:
            yield from flush()
            in_list = in_list and (not stripped or line.startswith(" "))
            continue
        if stripped.startswith("|"):
            yield from flush()
            # The row above the delimiters is a heading.
            if not DELIMITERS.match(stripped) and not DELIMITERS.match(following):
                for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                    if cell.strip():
                        yield Piece(number, "cell", cell.strip(), alone)
            continue
        item = ITEM.match(line)
        if item:
            yield from flush()
            kind, in_list = "item", True
            stripped = line[item.end() :].strip()
        if not lines:
            start = number
        lines.append(stripped.removeprefix("> "))
    yield from flush()


RUST = re.compile(
    r"""(?P<block>/\*.*?\*/)
    |(?P<line>//[^\n]*)
    |(?P<raw>\b[bc]?r(?P<hashes>\#*)"(?P<verbatim>.*?)"(?P=hashes))
    |[bc]?"(?P<string>[^"\\]*(?:\\.[^"\\]*)*)"
    |'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|[^ux]))'""",
    re.VERBOSE | re.DOTALL,
)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod \w+ \{")
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
WORD_OF_MESSAGE = re.compile(r"[(\"'“]*[A-Za-z][A-Za-z'’-]*[.,;:!?)\"'”]*")
FUNCTION_WORDS = frozenset(
    "a an and are as at be by can cannot do does for from has have if in is it its may must no not of on or "
    "than that the this to was were what which who whose will with".split()
)


def is_message(text):
    """Whether a person reads it: at least four words, most of it words, and one that is neither name nor command."""
    tokens = text.split()
    words = [token for token in tokens if WORD_OF_MESSAGE.fullmatch(token)]
    return len(words) >= 4 and len(words) >= 0.6 * len(tokens) and not FUNCTION_WORDS.isdisjoint(map(str.lower, words))


def escape(found):
    return {"n": "\n", "t": " ", "\n": ""}.get(found[1][0], found[1][0])


def without_placeholders(text):
    """The text of a format string, with a word for each placeholder."""
    return PLACEHOLDER.sub(lambda found: found[0][0] if found[0] in ("{{", "}}") else "X", text)


def messages(text, line):
    """A string literal as its paragraphs. All have the line of the literal."""
    text = re.sub(r"\\(\n\s*|.)", escape, text, flags=re.DOTALL)
    text = without_placeholders(text)
    for paragraph in re.split(r"\n\s*\n", text):
        if is_message(paragraph):
            yield Piece(line, "message", " ".join(paragraph.split()), True)


def rust(text, tests):
    """The comments of a Rust source, and, unless it is a test, the texts of its messages."""
    last = 0 if tests else len(text)
    if found := TESTS.search(text):
        last = min(last, found.start())
    block, start, marker = [], 0, ""
    line, at = 1, 0
    for token in RUST.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        if token["line"] is None and token["block"] is None:
            literal = token["verbatim"] if token["raw"] else token["string"]
            if literal and at < last:
                yield from messages(literal, line)
            continue
        if token["block"]:
            yield from markdown(re.sub(r"(?m)^\s*/?\*+[!/]? ?|\*/$", "", token["block"]), line)
            continue
        comment = re.match(r"//[/!]?", token["line"])[0]
        own_line = not text[text.rfind("\n", 0, at) + 1 : at].strip()
        if not (block and own_line and comment == marker and line == start + len(block)):
            yield from commented(block, start, marker)
            block, start, marker = [], line, comment
        block.append(token["line"][len(comment) :].removeprefix(" "))
    yield from commented(block, start, marker)


def commented(lines, first, marker):
    """The pieces of a comment. The first piece of documentation stands alone, as in the list of a module's items."""
    for at, piece in enumerate(markdown("\n".join(lines), first)):
        yield piece._replace(alone=marker == "///" and at == 0)


TRIPLE_QUOTED = re.compile(r'(?s)"""(.*?)"""')
INSTRUCTION = re.compile(r"!|\s*(?:shellcheck|fmt|noqa|type|ruff|pylint):? ")


def hashed(text, docstrings=False):
    """Comments with `#` on lines without code, and the docstrings of Python."""
    if docstrings:
        for found in TRIPLE_QUOTED.finditer(text):
            if not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip():
                yield from markdown(found[1], text.count("\n", 0, found.start()) + 1)
        text = TRIPLE_QUOTED.sub(lambda found: "\n" * found[0].count("\n"), text)
    block, start = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = line.strip()
        if comment.startswith("#") and not INSTRUCTION.match(comment[1:]):
            start = start if block else number
            block.append(comment.lstrip("#").removeprefix(" "))
        elif block:
            yield from markdown("\n".join(block), start)
            block = []


DESCRIPTION = re.compile(r'(?m)^description = "(.*)"$')


def descriptions(text):
    """The description of a crate or package, which registries show."""
    for found in DESCRIPTION.finditer(text):
        yield Piece(text.count("\n", 0, found.start()) + 1, "message", found[1], True)


def man_page(text):
    """The meanings and paragraphs of a page file, which crates/base/cli-docs/src/page_text.rs describes."""
    terms, meaning = [], []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_meaning = line.startswith(" " * 6)
        if not is_meaning and (meaning or not line.startswith("  ")):
            # Text without a term is literal.
            block = terms and (meaning or terms)
            if block and is_message(" ".join(row for _, row in block)):
                yield Piece(block[0][0], "message", "\n".join(row for _, row in block), True)
            terms, meaning = [], []
        if line.startswith("  "):
            (meaning if is_meaning else terms).append((number, line.strip()))


def pieces(name, text):
    """The pieces of the file of that name; none of a kind of file that has no prose."""
    parts = name.split("/")
    suffix = parts[-1].rpartition(".")[2] if "." in parts[-1] else ""
    if suffix == "md":
        return list(markdown(text))
    if suffix in ("rs", "c"):
        tests = suffix == "c" or not {"tests", "benches", "fuzz"}.isdisjoint(parts) or parts[-1] == "tests.rs"
        return list(rust(text, tests))
    if parts[-1] in ("Cargo.toml", "pyproject.toml"):
        return [*hashed(text), *descriptions(text)]
    if suffix in ("sh", "toml") or parts[-1] == "Makefile" or not suffix and text.startswith("#!"):
        return list(hashed(text, docstrings="python" in text.split("\n", 1)[0]))
    if suffix == "txt" and "man" in parts:
        return list(man_page(text))
    return list(hashed(text, docstrings=True)) if suffix == "py" else []
