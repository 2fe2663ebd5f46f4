# SPDX-License-Identifier: MIT OR Apache-2.0
"""SECURITY.md: each line about a compromised role names a test that exists and runs."""

import pathlib
import re
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
ROLES = (
    "monitor", "bus", "publisher", "backend", "responder nss", "responder pam", "`roster nscd`", "helper of nscd",
    "`roster-krb5 serve`", "`roster-krb5 bind`", "`roster-krb5 session`", "`roster-exec`", "daemon of rootwrap",
)  # fmt: skip


def rows():
    section = (TREE / "SECURITY.md").read_text().split("## Roles that are taken over\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def has_test(file, test):
    # Between the attribute and the function there may be other attributes, except `ignore`.
    pattern = rf"#\[(tokio::)?test[^\n]*\n(\s*#\[(?!ignore)[^\n]*\n)*\s*(async )?fn {test}\(\)"
    return re.search(pattern, file.read_text())


class Roles(unittest.TestCase):
    def test_each_role_has_a_line(self):
        self.assertEqual(tuple(row[0] for row in rows() if row[0]), ROLES)

    def test_each_line_names_tests_that_exist(self):
        for _, kind, what, tests in rows():
            self.assertIn(kind, ("can", "cannot"), what)
            named = re.findall(r"`(\w+)::(\w+)`", tests)
            self.assertTrue(named, what)
            self.assertEqual(" ".join(f"`{file}::{test}`" for file, test in named), tests)
            for file, test in named:
                files = [*TREE.glob(f"crates/**/{file}.rs"), *TREE.glob(f"tests/system/tests/{file}.rs")]
                found = [path for path in files if has_test(path, test)]
                self.assertEqual(len(found), 1, f"{file}::{test}")


if __name__ == "__main__":
    unittest.main()
