# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/symbol-versions: libraries that a C compiler makes here, and files that are no libraries."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest

from loading import load

script = load("symbol-versions")

# Both functions keep their version for ever.
OLD = "int secure_getenv(void); int call(void) { return secure_getenv(); }"
NEW = "int posix_spawn_file_actions_addclosefrom_np(void); int call(void) { return posix_spawn_file_actions_addclosefrom_np(); }"


class SymbolVersions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def library(self, source):
        file = self.folder / "library.so"
        compile_it = ["cc", "-shared", "-fPIC", "-nostartfiles", "-x", "c", "-", "-o", file]
        subprocess.run(compile_it, input=source, text=True, check=True)
        return file

    def run_script(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = script.main([str(argument) for argument in arguments])
        return status, said.getvalue()

    def test_symbol_at_limit_accepted(self):
        self.assertEqual(self.run_script("2.17", self.library(OLD)), (0, ""))
        self.assertEqual(self.run_script("2.34", self.library(NEW)), (0, ""))

    def test_symbol_above_limit_named(self):
        file = self.library(NEW)
        status, said = self.run_script("2.17", file)
        self.assertEqual(status, 1)
        self.assertIn(f"{file}: needs GLIBC_2.34 (posix_spawn_file_actions_addclosefrom_np)", said)

    def test_versions_compared_as_numbers(self):
        self.assertTrue(script.is_too_new("GLIBC_2.4", "2.3"))
        self.assertTrue(script.is_too_new("GLIBC_2.17", "2.4"))
        self.assertFalse(script.is_too_new("GLIBC_2.2.5", "2.17"))

    def test_version_without_number_rejected(self):
        self.assertTrue(script.is_too_new("GLIBC_PRIVATE", "2.17"))
        self.assertTrue(script.is_too_new("GLIBC_ABI_DT_RELR", "2.36"))

    def test_other_file_named(self):
        file = self.folder / "text"
        file.write_text("no library")
        for missing_or_not in [file, self.folder / "missing"]:
            status, said = self.run_script("2.17", missing_or_not)
            self.assertEqual(status, 1)
            self.assertIn(f"{missing_or_not}: cannot be read", said)

    def test_usage_without_file(self):
        self.assertEqual(self.run_script("2.17")[0], 2)
        self.assertEqual(self.run_script("new", "file")[0], 2)


if __name__ == "__main__":
    unittest.main()
