# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint of comments accepts heads with a limit or a neighbour, and rejects documentation without a subject."""

import pathlib
import sys
import unittest

LINT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/lint-prose"
sys.path.insert(0, str(LINT))
sys.dont_write_bytecode = True

import comments  # noqa: E402

NAME = "crates/serve/nss/src/status.rs"
MODULES = comments.module_names([NAME, "crates/serve/nss/src/exports.rs", "crates/serve/nss/src/lib.rs"])
CODE = "\n" * comments.HEAD_LINES_MIN


def head_findings(head, name=NAME, code=CODE):
    return list(comments.head_findings(name, f"// SPDX\n//! {head}\n{code}", MODULES))


class Heads(unittest.TestCase):
    def test_head_with_limit_is_accepted(self):
        for head in ["Statuses. This module makes no lookups.", "Statuses only.", "Statuses, never errors."]:
            self.assertEqual(head_findings(head), [], head)

    def test_head_with_neighbour_is_accepted(self):
        for head in ["`exports` returns statuses.", "See [`Snapshot`].", "`roster-nss` returns statuses.", "`crate::exports` has it.", "See [others](super::exports)."]:
            self.assertEqual(head_findings(head), [], head)

    def test_head_without_both_is_rejected(self):
        for head in ["Statuses of a lookup.", "`status` has statuses.", "Values of `passwd(5)`."]:
            self.assertEqual(len(head_findings(head)), 1, head)

    def test_missing_head_is_rejected(self):
        self.assertEqual(len(list(comments.head_findings(NAME, "use std::fs;\n" + CODE, MODULES))), 1)

    def test_small_modules_and_tests_are_exempt(self):
        self.assertEqual(head_findings("Statuses of a lookup.", code=""), [])
        for name in ["crates/serve/nss/tests/all.rs", "crates/serve/nss/src/tests.rs", "fuzz/fuzz_targets/nss.rs"]:
            self.assertEqual(head_findings("Statuses of a lookup.", name), [], name)


class Openings(unittest.TestCase):
    def findings(self, text):
        return [line.split(":")[1] for line in comments.opening_findings(NAME, text)]

    def test_pronoun_or_question_word_is_rejected(self):
        for text in ["/// Its name.", "    /// These users.", "//! How it works.", "/// [What](x) is read.", "/// It ends."]:
            self.assertEqual(self.findings(text), ["1"], text)

    def test_noun_verb_or_whether_is_accepted(self):
        for text in ["/// The domain's name.", "/// Returns its name.", "/// Whether it ends.", "// Its own line.", "//// Its"]:
            self.assertEqual(self.findings(text), [], text)

    def test_only_first_line_of_comment_counts(self):
        self.assertEqual(self.findings("/// The name of a user and\n/// its groups.\nname: u8,\n/// Its uid."), ["4"])


if __name__ == "__main__":
    unittest.main()
