#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint `prose`: documents, comments and messages are plain for readers from outside this project.

A file with more than 150 words has limits. They bound the mean length of its sentences, the share of long sentences, the
share of hidden subjects, and the length of a paragraph. No sentence has more than two relative clauses or a word of
`words.txt`, and no text names a Rust source that is not in the tree. A sentence without a verb, as in a table, counts only
if it is long or has a hidden subject.

usage: tests/lint-prose/prose.py [--report] [FILE…]; exit status 1 with findings
       tests/lint-prose/prose.py - <TEXT; each fault of a text in Markdown that has no limits and stands alone
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import faults
import sentences
import texts

WORDS_MIN = 150
MEAN_MAX = 16
LONG_MAX_PERCENT = 5
HIDDEN_MAX_PERCENT = 2
PARAGRAPH_MAX = 100
# Findings of one kind that are listed for a file.
LISTED_MAX = 8
# Characters of a sentence in a finding.
SHOWN = 160
# Texts of others, and sentences that the lint has to reject.
LEFT_OUT = ("LICENSE", "scripts/advisory-db/crates/", "fuzz/seeds/", "scripts/tests/test_lint_prose.py")
SOURCE = re.compile(r"(?<![\w/.*-])(?:[\w.-]+/)*\w[\w-]*\.rs\b(?!\.)")


class Measure(NamedTuple):
    """The values of a file, and its faults as file line, sentence and fault."""

    words: int
    sentences: int
    mean: float
    long: int
    hidden: int
    paragraph: int
    found: list
    longest: list  # the longest sentences that count for the mean: words, line and text

    def percent(self, count):
        return 100 * count / max(1, self.sentences)

    def excess(self):
        """The values beyond a limit: counts, the longest paragraph, and the mean."""
        kinds = Counter(fault.kind for _, _, fault in self.found)
        values = {"relative": kinds["relative"], "word": kinds["word"]}
        if self.words > WORDS_MIN:
            values["mean"] = self.mean if self.mean > MEAN_MAX else 0
            values["long"] = self.long if self.percent(self.long) > LONG_MAX_PERCENT else 0
            values["hidden"] = self.hidden if self.percent(self.hidden) > HIDDEN_MAX_PERCENT else 0
            values["paragraph"] = self.paragraph if self.paragraph > PARAGRAPH_MAX else 0
        return {name: value for name, value in values.items() if value}


def sources(names):
    """Ends of the paths of Rust sources, with and without their `src`: all that a text may name."""
    rust = [name for name in names if name.endswith(".rs")]
    rust += [name.replace("/src/", "/") for name in rust]
    return {"/".join(name.split("/")[-at:]) for name in rust for at in range(1, name.count("/") + 2)}


def measure(name, text, known=None):
    """The measure of a file; `known` has the names of sources, and None accepts all."""
    found, counted, words, paragraph = [], [], 0, 0
    for piece in texts.pieces(name, text):
        length = 0
        for at, sentence in enumerate(sentences.split(piece)):
            broken = list(faults.faults(sentence, piece.alone and at == 0))
            found += [(sentence.line, sentence.shown, fault) for fault in broken]
            length += sentence.words
            if sentence.verb or any(fault.kind in ("long", "hidden") for fault in broken):
                counted.append((sentence.words, sentence.line, sentence.shown))
        words += length
        if length > PARAGRAPH_MAX and piece.kind != "message":
            fault = faults.Fault("paragraph", f"a paragraph of {length} words", "Split it, or make it a list.")
            found.append((piece.line, " ".join(piece.text.split()[:12]) + " …", fault))
            paragraph = max(paragraph, length)
        elif piece.kind != "message":
            paragraph = max(paragraph, length)
        old = [*faults.listed("names", piece.text)]
        for source in SOURCE.findall(piece.text) if known is not None else []:
            if source.lstrip("./") not in known:
                old.append(faults.Fault("word", f"{source}, which is not in the tree", "Name the present file."))
        found += [(piece.line, " ".join(piece.text.split()), fault) for fault in old]
    kinds = Counter(fault.kind for _, _, fault in found)
    mean = sum(length for length, _, _ in counted) / max(1, len(counted))
    return Measure(words, len(counted), mean, kinds["long"], kinds["hidden"], paragraph, found, sorted(counted)[:-4:-1])


def changed(root, name):
    """The lines of a file that differ from the last commit."""
    command = ["git", "-C", root, "diff", "-U0", "HEAD", "--", name]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    spans = re.findall(r"(?m)^@@ \S+ \+(\d+)(?:,(\d+))? @@", listed)
    return {line for first, count in spans for line in range(int(first), int(first) + int(count or 1))}


def findings(measures, changed=lambda _: set()):
    """The lines of the report on measured files. Sentences on changed lines come first."""
    report = []
    for name, one in measures.items():
        for key in one.excess():
            of_kind = sorted((found for found in one.found if found[2].kind == key), key=lambda found: found[0])
            if key == "mean":
                report.append(f"{name}: mean of {one.mean:.1f} words a sentence (limit {MEAN_MAX}). Split sentences, the longest first:")
                report += [f"{name}:{line}: {words} words. {text[:SHOWN]}" for words, line, text in one.longest]
                continue
            if key in LIMITS:
                report.append(f"{name}: {len(of_kind)} of {one.sentences} sentences {LIMITS[key]}:")
            if len(of_kind) > LISTED_MAX:
                new = changed(name)
                of_kind.sort(key=lambda found: found[0] not in new)
            report += [f"{name}:{line}: {fault.found}. {fault.advice} {text[:SHOWN]}" for line, text, fault in of_kind[:LISTED_MAX]]
            if len(of_kind) > LISTED_MAX:
                report.append(f"{name}: and {len(of_kind) - LISTED_MAX} more")
    return report


LIMITS = {
    "long": f"have more than {faults.WORDS_MAX} words (limit {LONG_MAX_PERCENT} %)",
    "hidden": f"have a hidden subject (limit {HIDDEN_MAX_PERCENT} %)",
}


def judge(text):
    """The report on a text that stands alone, as a message does: each fault of each sentence."""
    report = []
    for piece in texts.markdown(texts.without_placeholders(text), alone=True):
        for at, sentence in enumerate(sentences.split(piece)):
            broken = faults.faults(sentence, at == 0)
            report += [f"-:{sentence.line}: {fault.found}. {fault.advice} {sentence.shown[:SHOWN]}" for fault in broken]
    return report


def table(measures):
    """The report for people: one line for each file, the worst first."""
    rows = sorted(measures.items(), key=lambda row: (-row[1].percent(row[1].hidden), -row[1].mean, row[0]))
    lines = [f"{'file':<60} {'words':>6} {'mean':>5} {'> 30':>5} {'hidden':>7} {'paragraph':>9}"]
    for name, one in [row for row in rows if row[1].words]:
        long, hidden = one.percent(one.long), one.percent(one.hidden)
        lines.append(f"{name:<60} {one.words:>6} {one.mean:>5.1f} {long:>3.0f} % {hidden:>5.0f} % {one.paragraph:>9}")
    return lines


def tracked(root):
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if name and not name.startswith(LEFT_OUT) and (root / name).is_file()]


def main():
    parser = argparse.ArgumentParser(prog="tests/lint-prose/prose.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="only these files; -: a text on standard input")
    parser.add_argument("--report", action="store_true", help="print words, mean, shares and the longest paragraph of each file")
    options = parser.parse_args()
    if options.files == ["-"]:
        report = judge(sys.stdin.read())
        print(*report, sep="\n", end="\n" if report else "", file=sys.stderr)
        return bool(report)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    names = tracked(root)
    # Paths of files in the tree are relative to its root.
    chosen = [os.path.relpath(file, root) if root in pathlib.Path(file).resolve().parents else file for file in options.files] or names
    known = sources(names)
    measures = {name: measure(name, (root / name).read_bytes().decode(errors="replace"), known) for name in chosen}
    if options.report:
        print(*table(measures), sep="\n")
        return 0
    report = findings(measures, lambda name: changed(root, name))
    print(*report, sep="\n", end="\n" if report else "", file=sys.stderr)
    return bool(report)


if __name__ == "__main__":
    sys.exit(main())
