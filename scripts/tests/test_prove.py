# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/prove: the table names tests that exist, and a verdict needs the failure that the table names."""

import pathlib
import re
import tempfile
import tomllib
import unittest

from loading import load

prove = load("prove")

FAILS = """#!/bin/sh
echo "thread 'area_fails' panicked: $ROSTER_INSTALLED is open to all$ROSTER_DOMAIN_KEYS$ROSTER_OLD_NAMES"
echo "test $2 ... FAILED"
exit 101
"""
PASSES = """#!/bin/sh
echo "test $2 ... ok"
echo "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s"
"""
NO_TEST = """#!/bin/sh
echo "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s"
"""


class Table(unittest.TestCase):
    def test_each_row_names_a_test_and_its_failure(self):
        proofs = tomllib.loads(prove.TABLE.read_text())["proof"]
        self.assertGreater(len(proofs), 30)
        tests = [proof["test"] for proof in proofs]
        self.assertEqual(len(tests), len(set(tests)))
        for proof in proofs:
            file, test = proof["test"].split("::")
            self.assertRegex((prove.TREE / file).read_text(), rf"#\[test\]\nfn {test}\(\)", proof["finding"])
            # The pattern does not match the lines that every failure has.
            self.assertIsNone(re.search(proof["failure"], f"test {test} ... FAILED\nthread '{test}' panicked at {file}"))
            self.assertTrue(proof["title"])


class Verdicts(unittest.TestCase):
    def proved(self, script, failure, names="", **keys):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            executable = pathlib.Path(folder, "test")
            executable.write_text(script)
            executable.chmod(0o755)
            proof = {"test": "file.rs::area_fails", "failure": failure, **keys}
            executables = {"file.rs": (executable, pathlib.Path(folder))}
            return prove.proved(proof, executables, pathlib.Path("/installed"), names)

    def test_named_failure_is_present(self):
        self.assertEqual(self.proved(FAILS, "is open to \\w+"), (prove.HAS, "is open to all"))
        self.assertEqual(self.proved(FAILS, "/installed is open to allkey", domain_keys="key")[0], prove.HAS)
        self.assertEqual(self.proved(FAILS, "open to allnew=old", names="new=old")[0], prove.HAS)

    def test_passed_is_absent(self):
        self.assertEqual(self.proved(PASSES, "is open")[0], prove.LACKS)

    def test_other_failures_are_errors(self):
        self.assertEqual(self.proved(FAILS, "is closed")[0], prove.ERROR)
        self.assertEqual(self.proved(NO_TEST, "is open")[0], prove.ERROR)
        self.assertEqual(self.proved("#!/bin/sh\nexit 1\n", "is open")[0], prove.ERROR)

    def test_names_that_programs_lack_are_old(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder, "usr/bin")
            programs.mkdir(parents=True)
            programs.joinpath("rosterd").write_bytes(b"\x00poll_interval\x00")
            names = {"poll_interval": "poll", "negative_ttl": "negative"}
            self.assertEqual(prove.old_names(names, pathlib.Path(folder)), ["negative_ttl=negative"])


if __name__ == "__main__":
    unittest.main()
