# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sentences of a piece of prose: their words, and whether they have a verb."""

import re
from typing import NamedTuple


class Sentence(NamedTuple):
    line: int
    text: str  # without markup and code
    shown: str
    words: int
    verb: bool


CODE = re.compile(r"(`+)(?:.|\n)*?\1")
MARKUP = (
    (re.compile(r"<[^<>\n]+>"), ""),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),
    # Titles of pages may begin with a question word.
    (re.compile(r"\[(?:What|Which|Where|Who) [^\]]*\]\([^)]*\)"), "TITLE"),
    (re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"\*\*"), ""),
    (re.compile(r"__+(?:\n_+)*"), "CODE"),
)
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx)\.(?=\s+[a-z0-9(])")
END = re.compile(r"(?<=[.!?])[\"')\]”’*]*\s+(?=[\"'(\[“*]*[A-Za-z0-9_])")
WORD = re.compile(r"[\w%'’/.:+-]*\w[\w%'’/.:+-]*")

AUXILIARIES = frozenset(
    "am are be been can cannot could did do does had has have is may might must shall should was were will would "
    "ain't aren't can't couldn't didn't doesn't don't hasn't haven't isn't mustn't shouldn't wasn't won't wouldn't "
    "it's that's there's took went ran saw came".split()
)
BASES = (
    "abort accept accompany account act activate adapt add admit affect aim allow answer appear append apply approve "
    "arrive ask assert assign assume attach authenticate avoid become begin believe belong bind block boot bound break "
    "bring build call cancel cap carry cause change check choose claim cleanse clear close collect come commit compare "
    "compile complete compute configure confine confirm conflict connect consider consist contain continue convert copy "
    "correct cost count cover create cut deal decide declare decode default define delay delete deliver deny depend "
    "describe detect determine differ disable discard disconnect display distribute document drop edit emit enable "
    "encode encrypt end enforce enter enumerate equal escape evict evaluate examine exceed exclude execute exist exit "
    "expand expect expire explain export extend fail fall fetch fill filter find finish fit fix flush follow forget "
    "fork format forward free generate get give go grant grow guess halt handle hang hash help hide hold identify ignore "
    "impersonate imply import include increase inherit insert inspect install interpret invalidate involve issue join keep "
    "kill know label lack last lead leave let lie limit link list listen live load lock log look lose make manage map "
    "mark match matter mean measure meet merge miss modify mount move name need notice notify obey occur offer omit open "
    "own parse pass permit persist pick pin place point poll prefer prepare present preserve prevent print produce "
    "prohibit protect prove provide publish pull push put query quit raise ran rank reach read rebuild receive recognize "
    "recommend record reconnect recover redirect reduce refer refresh refuse regain reject release rely reload remain "
    "remove rename renew repeat replace reply report represent request require reread reserve reset resolve respond "
    "restart restore result resume retain retry return reuse reveal reverse revert rewrite rotate run save scale scan "
    "search see seem select send separate serve set share ship show shrink shut sign signal skip sleep sort span spawn "
    "specify spend split stand start state stay stop store strip succeed suffice support supply suppress survive switch "
    "take talk target tell terminate test time touch trace track transfer translate treat trigger trust try turn undo "
    "unlink unload unlock unmount update upgrade use validate vary verify wait want warn watch wipe work wrap write yield"
).split()  # fmt: skip


def third_person(verb):
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


BASE = frozenset(BASES)
THIRD = frozenset(map(third_person, BASES))
# After these comes a noun.
BEFORE_NOUN = frozenset(
    "a an the of in for with by to no all these those each every per both as at on from its their other more most "
    "many few several two three four and or".split()
)
AFTER_NOUN = frozenset("of for in by from on and or that which with between".split())
OBJECTS = frozenset("a an the it its them this these each all no".split())
PRONOUNS = frozenset("i we you they who which that to not never always also only then and or".split())


def has_verb(words):
    """Whether a sentence says something of its subject, or what to do. A guess: there is no grammar here."""
    lowered = [word.lower().strip(".:'’") for word in words]
    if not AUXILIARIES.isdisjoint(lowered) or lowered[0] in BASE:
        return True
    # "Reads the file." in the comment of a function, but not "Limits of a process."
    if lowered[0] in THIRD and lowered[1] not in AFTER_NOUN:
        return True
    for before, word, after in zip(lowered, lowered[1:], [*lowered[2:], ""]):
        if word in THIRD and before not in BEFORE_NOUN:
            return True
        subject = before in PRONOUNS or before.endswith("s") and before not in BEFORE_NOUN and before not in THIRD
        if word in BASE and (subject or after in OBJECTS and before not in BEFORE_NOUN):
            return True
        if after in OBJECTS and word.endswith("ed") and before not in BEFORE_NOUN:
            return True
    return False


def masked(text):
    """The same characters and line ends, but for one word in place of each code span, and no full stop inside a sentence."""
    text = CODE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)
    return ABBREVIATION.sub(lambda found: found[0].replace(".", "_"), text)


def plain(text):
    """A masked text without markup."""
    for pattern, by in MARKUP:
        text = pattern.sub(by, text)
    return " ".join(text.split())


def split(piece):
    """The sentences of a piece that have at least two words."""
    text = masked(piece.text)
    begin = 0
    for end in [found.span() for found in END.finditer(text)] + [(len(text), len(text))]:
        sentence = plain(text[begin : end[0]])
        words = WORD.findall(sentence)
        if len(words) >= 2:
            line = piece.line + text.count("\n", 0, begin)
            yield Sentence(line, sentence, " ".join(piece.text[begin : end[0]].split()), len(words), has_verb(words))
        begin = end[1]
