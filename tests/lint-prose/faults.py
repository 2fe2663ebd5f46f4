# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rules for one sentence. A fault has a kind, the words that were found, and advice."""

import pathlib
import re
from typing import NamedTuple

WORDS_MAX = 30
RELATIVES_MAX = 2
WORDS = pathlib.Path(__file__).with_name("words.txt")


class Fault(NamedTuple):
    kind: str  # "long", "hidden", "relative" or "word"
    found: str
    advice: str


def rules(*rows):
    return tuple((re.compile(pattern), advice) for pattern, advice in rows)


NAME_IT = "Make a named component the subject."
# A reader cannot see the component that acts.
PRONOUN = re.compile(
    r"\b(?:who|whom|whose|who(?:m|so)?ever|whatever|(?:some|any|every)(?:body|one)|no(?:body| one))\b", re.IGNORECASE
)
HIDDEN = rules(
    # The sentence opens with a clause or an elided noun as its subject. Questions may.
    (r"^(?:What|Whether (?:it|they)|Which|Nor|Of(?! course))\b(?!.*\?$)", NAME_IT),
    (r"\b(?i:only) (?:what|who|whom)\b(?! to\b)|\bthose with(?:out)?\b", "Repeat the noun."),
    (r"^(?:That|Those|One|Such) (?:which|that|who|with|of|as)\b|^That (?:it|they|an?|the|no)\b", NAME_IT),
    (r"^Where\b(?! (?:possible|need|necessary|available|supported|applicable))(?!.*\?$)", 'Write "if" and name the component.'),
    # A clause with `what`, but no question.
    (r"(?:[,;:]|\b(?:and|or|but)) what (?!to\b)|\bwhat (?:is|are|was|were)\b(?!.*\?$)", NAME_IT),
    (r"\b(?:with|of|by|from|on|in|for|say|says|said|tell|tells) what (?!to\b|happens\b)", "Name it."),
    # A negated noun.
    (r"(?<!\b[Tt]here )\b(?:is|are|was|were) (?:no(?! (?:longer|more|later|less|such)\b)|none(?! by)|nothing)\b", "Affirm: say what it is."),
    (r"\bnone (?:while|where|when|by(?! default)|but)\b|\bno \w+ but\b", 'Affirm: write "only".'),
    # A missing noun.
    (r"\bthe (?:one|other|first|last) (?:that|which|is|are|was|were|has|have|does)\b", "Repeat the noun."),
    (r"\b(?:of|by|to|from|with) the (?:one|other|first)(?=[,.;:)]| (?:is|are|was|were|has|have)\b|$)", "Repeat the noun."),
    (
        r"\b(?:of|is|are|be|was|were)(?: (?:an?|the|another))? [\w-]+['’]s(?=[,.;:)]|$| (?:as well|alone|or|and|but|only|that|which)\b)",
        "Write the noun after the genitive.",
    ),
)  # fmt: skip
# For the first sentence of a text that stands alone: a pronoun has no noun before it.
HIDDEN_ALONE = rules(
    (r"^(?:X: )?(?:[a-z]+ )?(?:it|its|they|them|their|him)\b", "Write the noun."),
    (r"\b(?<!from )where (?!to\b|X\b)(?:\w+ )+?(?:is|are|has|have|calls?|can|cannot)\b", 'Write "if" or "because".'),
    (r"\b(?:is|are) X's\b", "Write the noun after the genitive."),
)

# After these words `that` begins another kind of clause.
NO_RELATIVE = (
    "so such say says said state states ensure ensures check checks show shows shown means mean know knows note require "
    "requires verify verifies see sees assume assumes report reports prove proves confirm confirms is was in of by for "
    "with on at after before than as and or from to until since if when while not except"
).split()
RELATIVE = re.compile(r"\b(?:which|who|whom|whose)\b|(?<=[,;] )where\b|\b(\w+) that\b(?! (?:case|is)\b)")


def relatives(text):
    """The number of relative clauses. A guess, because `that` has other uses."""
    return sum(1 for found in RELATIVE.finditer(text) if found[1] is None or found[1].lower() not in NO_RELATIVE)


def read_words(text):
    """The sections of words.txt: one regular expression each, and the advice for each of its patterns."""
    sections, rows = {}, []
    for line in text.splitlines():
        if line.startswith("[") and line.endswith("]"):
            rows = sections.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("#"):
            pattern, _, advice = line.rpartition(" = ")
            rows.append((pattern, advice))
    return {name: (whole(rows), [advice for _, advice in rows]) for name, rows in sections.items()}


def whole(rows):
    patterns = "|".join(f"({pattern})" for pattern, _ in rows)
    # Few positions pass the first test, which makes the search twice as fast.
    return re.compile(rf"(?:\b(?=\w)|(?=[`-]))(?<![\w-])(?:{patterns})(?![\w-])", re.IGNORECASE)


SECTIONS = read_words(WORDS.read_text())


def listed(section, text):
    expression, advice = SECTIONS[section]
    for found in expression.finditer(text):
        yield Fault("word", f'"{found[0]}"', f"Write: {advice[found.lastindex - 1]}.")


def hidden(text, alone):
    """The first rule for subjects that a sentence breaks."""
    if found := PRONOUN.search(text):
        return Fault("hidden", f'hidden subject "{found[0]}"', NAME_IT)
    for rule, advice in HIDDEN + (HIDDEN_ALONE if alone else ()):
        if found := rule.search(text):
            return Fault("hidden", f'hidden subject "{found[0].strip()}"', advice)
    return None


def faults(sentence, alone=False):
    """The faults of a sentence; `alone`: it is the first of a text that stands alone."""
    text = sentence.text
    if sentence.words > WORDS_MAX:
        yield Fault("long", f"{sentence.words} words", "Split it: one fact a sentence.")
    if fault := hidden(text, alone):
        yield fault
    count = relatives(text)
    if count > RELATIVES_MAX:
        yield Fault("relative", f"{count} relative clauses", "Split it: at most two a sentence.")
    yield from listed("words", text)
