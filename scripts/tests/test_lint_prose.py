# SPDX-License-Identifier: MIT OR Apache-2.0
"""The prose lint accepts the manner of its models, rejects the worst sentences, and limits each file."""

import pathlib
import sys
import unittest

LINT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/lint-prose"
sys.path.insert(0, str(LINT))
sys.dont_write_bytecode = True

import faults  # noqa: E402
import prose  # noqa: E402
import sentences  # noqa: E402
import texts  # noqa: E402

PADDING = "The daemon reads the file and sends a reply to the client. " * 15
LONG = "The daemon reads " + "the next file and " * 10 + "sends a reply. "

REJECTED = """
hidden: Users who log in see it.
hidden: This is no filter.
hidden: What the caller reads.
hidden: The file of root's, and its mode.
hidden: The daemon reads what is there.
hidden: Where root calls, it runs.
hidden: The client reads only what changed.
hidden: The daemon names only who logged in.
hidden: It reads the files, and skips those with a mark.
hidden: It lists the users, including those without a domain.
word: A folder holds the files.
word: The client is told the path.
word: The server waits at the most a second.
word: Read it anew.
word: The Log-in fails.
relative: The file that the daemon which serves the host that asks.
""".strip().splitlines()

ACCEPTED = """
A caller reads what to do next.
The page says only what to do next.
It reads those files with a mark.
There is no daemon.
The lock is no longer needed.
What does the daemon read?
Where possible, use the socket.
The background task reads the file.
Enclose it in `somebody told nobody`.
See [the page](who/whose/whoever.md) for the list.
[What the daemon does not do](limits.md) has the list.
The value is none by default.
The user's files and the group's members match.
""".strip().splitlines()


def kinds(text, alone=False):
    piece = texts.Piece(1, "paragraph", texts.without_placeholders(text), alone)
    found = [fault for at, one in enumerate(sentences.split(piece)) for fault in faults.faults(one, alone and at == 0)]
    return [fault.kind for fault in found]


def excess(text, name="page.md", known=None):
    return prose.measure(name, text, known).excess()


class Sentences(unittest.TestCase):
    def test_models_are_accepted(self):
        one = prose.measure("models.md", (LINT / "models.md").read_text())
        self.assertEqual(one.found, [])
        self.assertEqual(one.excess(), {})
        self.assertGreater(one.words, prose.WORDS_MIN)

    def test_each_worst_sentence_is_rejected(self):
        lines = [line for line in (LINT / "worst.txt").read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 40)
        for line in lines:
            kind, text = line.split(": ", 1)
            self.assertTrue(kinds(text, alone=kind == "message"), text)
            self.assertTrue(prose.judge(text), text)

    def test_faults_have_their_kind(self):
        for line in REJECTED:
            kind, text = line.split(": ", 1)
            self.assertIn(kind, kinds(text), text)

    def test_other_sentences_are_accepted(self):
        for text in ACCEPTED:
            self.assertEqual(kinds(text), [], text)

    def test_pronoun_needs_noun_before_it_in_message(self):
        self.assertEqual(kinds("remove it, or restart", alone=True), ["hidden"])
        self.assertEqual(kinds("remove it, or restart"), [])

    def test_sentences_end_at_full_stops(self):
        piece = texts.Piece(5, "paragraph", "See `a. B`, e.g. the file, i.e. it.\nrosterd reads 1.5 files. It ends")
        found = [(one.line, one.words) for one in sentences.split(piece)]
        self.assertEqual(found, [(5, 7), (6, 4), (6, 2)])

    def test_verbs_are_found(self):
        for text in ["The kernel names the peer", "Remove the key", "Reads the file", "Users log in", "It cannot be read"]:
            self.assertTrue(sentences.has_verb(text.split()), text)
        for text in ["limits for each uid", "Names of all users", "the files and names", "one reply of the server"]:
            self.assertFalse(sentences.has_verb(text.split()), text)


class Texts(unittest.TestCase):
    def pieces(self, name, text):
        return [(one.line, one.kind, one.text) for one in texts.pieces(name, text)]

    def test_markdown_has_paragraphs_items_and_cells(self):
        text = "# Title\n\nOne\ntwo.\n\n- item\n  more\n- next\n\n| a | b |\n|---|---|\n| c | d |\n\n```sh\ncode\n```\n<!-- no -->\n"
        expected = [(3, "paragraph", "One\ntwo."), (6, "item", "item\nmore"), (8, "item", "next")]
        expected += [(12, "cell", "c"), (12, "cell", "d")]
        self.assertEqual(self.pieces("a.md", text), expected)

    def test_rust_has_comments_and_messages(self):
        text = (
            "//! Module\n//! page.\n\n/// Doc.\nfn f() { // trailing\n"
            '    fail("the file \\"{path}\\" is not \\\n        readable {{here}}"); run("getent passwd alice bob");\n'
            "    let a = ['\"', '\\''];\n}\n#[cfg(test)]\nmod tests {\n"
            '    // In a test.\n    const T: &str = "a text that is not a message";\n}\n'
        )
        expected = [
            (1, "paragraph", "Module\npage."), (4, "paragraph", "Doc."),
            (6, "message", 'the file "X" is not readable {here}'), (5, "paragraph", "trailing"),
            (12, "paragraph", "In a test."),
        ]  # fmt: skip
        self.assertEqual(sorted(self.pieces("crates/a/src/b.rs", text)), sorted(expected))

    def test_tests_have_no_messages(self):
        text = 'fail("the file is not readable by it");\n'
        self.assertEqual(len(self.pieces("crates/a/src/b.rs", text)), 1)
        self.assertEqual(self.pieces("crates/a/tests/b.rs", text), [])

    def test_scripts_have_comments_and_docstrings(self):
        text = '#!/usr/bin/env python3\n"""Doc."""\n\n# Why.\n# More.\nx = 1  # code\ny = """\nno\n"""\n'
        self.assertEqual(self.pieces("tool", text), [(2, "paragraph", "Doc."), (4, "paragraph", "Why.\nMore.")])
        self.assertEqual(self.pieces("data.bin", text), [])

    def test_manifests_have_comments_and_description(self):
        text = '# Why.\n[package]\ndescription = "The name of the file"\nlicense = "MIT"\n'
        expected = [(1, "paragraph", "Why."), (3, "message", "The name of the file")]
        self.assertEqual(self.pieces("crates/x/Cargo.toml", text), expected)

    def test_page_files_have_meanings_and_paragraphs(self):
        text = "Files:\n  /a/b\n      The file of\n      the daemon.\n\n  It may be missing.\n\n      the text as it is\n"
        expected = [(3, "message", "The file of\nthe daemon."), (6, "message", "It may be missing.")]
        self.assertEqual(self.pieces("crates/x/man/x.txt", text), expected)
        self.assertEqual(self.pieces("crates/x/src/x.txt", text), [])


class Limits(unittest.TestCase):
    def test_file_within_limits_has_no_excess(self):
        self.assertEqual(excess(PADDING), {"paragraph": 180})
        self.assertEqual(excess(PADDING.replace(". ", ".\n\n")), {})

    def test_long_sentences_and_mean_are_limited(self):
        self.assertEqual(excess(6 * (LONG + "\n\n")), {"long": 6, "mean": 46.0})

    def test_small_file_has_no_mean(self):
        self.assertEqual(excess(LONG), {})
        self.assertEqual(excess(LONG + "A folder."), {"word": 1})

    def test_fragments_do_not_lower_mean(self):
        many = excess(6 * (LONG + "\n\n") + 50 * "| one name of a file | a number |\n")
        self.assertEqual(many["mean"], 46.0)

    def test_hidden_subjects_are_a_share(self):
        page = 60 * "The daemon reads the file and sends it.\n\n"
        self.assertEqual(excess(page + "Nobody waits for it."), {})
        self.assertEqual(excess(page + 2 * "Nobody waits for it.\n\n"), {"hidden": 2})

    def test_old_names_are_found_in_code(self):
        self.assertEqual(excess("Run `roster synth` first."), {"word": 1})
        self.assertEqual(excess("Run `roster generate` first."), {})

    def test_named_source_is_in_tree(self):
        known = prose.sources(["crates/serve/nss/src/floor.rs"])
        self.assertEqual(excess("See `floor.rs` and nss/src/floor.rs.", known=known), {})
        self.assertEqual(excess("See `ground.rs`.", known=known), {"word": 1})


class Findings(unittest.TestCase):
    def findings(self, text, changed=()):
        return prose.findings({"page.md": prose.measure("page.md", text)}, lambda _: set(changed))

    def test_good_text_has_no_finding(self):
        self.assertEqual(self.findings("A reply comes."), [])

    def test_finding_has_line_and_advice(self):
        expected = 'page.md:2: "folder". Write: directory; of LDAP entries: container. A folder.'
        self.assertEqual(self.findings("\nA folder."), [expected])

    def test_mean_names_longest_sentences(self):
        report = [line for line in self.findings("A reply comes.\n\n" + 6 * (LONG + "\n\n")) if "Split it" not in line]
        self.assertIn("mean of ", report[0])
        self.assertEqual([line.split(" words")[0] for line in report[1:4]], ["page.md:13: 46", "page.md:11: 46", "page.md:9: 46"])

    def test_changed_lines_come_first(self):
        report = self.findings("A folder.\n\n" * 10, changed=[19])
        self.assertEqual([line.split(":")[1] for line in report], ["19", "1", "3", "5", "7", "9", "11", "13", " and 2 more"])


class Words(unittest.TestCase):
    def test_each_pattern_has_advice(self):
        for expression, advice in faults.SECTIONS.values():
            self.assertEqual(expression.groups, len(advice))
            self.assertTrue(all(advice))


if __name__ == "__main__":
    unittest.main()
