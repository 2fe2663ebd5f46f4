# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/bench-base on a toy repository: its errors, its note, and that a second call builds nothing."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MAKEFILE = """\
build:
\t@echo built >>"$$CARGO_TARGET_DIR/builds"
\t@test ! -e broken
install:
\t@mkdir -p "$$DESTDIR$$PREFIX/bin" && cp version "$$DESTDIR$$PREFIX/bin/roster"
"""


class BenchBase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.tree = Path(folder.name).resolve(), Path(folder.name).resolve() / "tree"
        (self.tree / "scripts").mkdir(parents=True)
        for script in ("bench-base", "common.sh"):
            shutil.copy(SCRIPTS / script, self.tree / "scripts")
        (self.tree / "Makefile").write_text(MAKEFILE)
        self.git("init", "-q", "-b", "main")
        self.first = self.commit(version="one")
        self.second = self.commit(version="two")

    def git(self, *argv):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
        argv = ["git", *identity, *argv]
        return subprocess.run(argv, cwd=self.tree, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files):
        for name, text in files.items():
            (self.tree / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def run_script(self, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in ("REV", "BASE", "MAKEFLAGS")}
        environment |= {"CARGO_TARGET_DIR": str(self.root / "target"), **variables}
        argv = [self.tree / "scripts/bench-base"]
        return subprocess.run(argv, cwd=self.tree, env=environment, capture_output=True, text=True)

    def builds(self):
        return (self.root / "target/bench-base/builds").read_text().count("built")

    def test_old_revision_installed_and_noted(self):
        ran = self.run_script(REV="HEAD~1")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        base = self.tree / "bench/out/base" / self.first[:12]
        self.assertEqual(ran.stdout, f"{base}\n")
        self.assertEqual((base / "usr/bin/roster").read_text(), "one")
        self.assertEqual((base / "bench-base.commit").read_text(), f"{self.first}\n")

    def test_second_call_builds_nothing(self):
        for _ in range(2):
            self.assertEqual(self.run_script(REV=self.first).returncode, 0)
        self.assertEqual(self.builds(), 1)

    def test_named_folder_follows_revision(self):
        base = self.root / "base"
        for commit, version in ((self.first, "one"), (self.second, "two")):
            self.assertEqual(self.run_script(REV=commit, BASE=str(base)).stdout, f"{base}\n")
            self.assertEqual((base / "usr/bin/roster").read_text(), version)

    def test_uncommitted_changes_stay_and_do_not_count(self):
        (self.tree / "version").write_text("three")
        base = Path(self.run_script(REV="HEAD").stdout.strip())
        self.assertEqual((base / "usr/bin/roster").read_text(), "two")
        self.assertEqual((self.tree / "version").read_text(), "three")

    def test_unknown_revision_error_names_it(self):
        ran = self.run_script(REV="nonsense")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("REV=nonsense: git knows no such revision", ran.stderr)

    def test_missing_revision_is_error(self):
        self.assertIn("REV: the revision is missing", self.run_script().stderr)

    def test_failing_build_leaves_no_note(self):
        self.commit(broken="")
        ran = self.run_script(REV="HEAD")
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, "REV=HEAD: make build of [0-9a-f]{12} failed")
        self.assertEqual(list((self.tree / "bench").rglob("bench-base.commit")), [])

    def test_folder_with_other_files_is_left_alone(self):
        precious = self.root / "home/letter"
        precious.parent.mkdir()
        precious.write_text("dear")
        ran = self.run_script(REV="HEAD", BASE=str(precious.parent))
        self.assertEqual(ran.returncode, 1)
        self.assertIn("the directory has other files in it", ran.stderr)
        self.assertEqual(precious.read_text(), "dear")


if __name__ == "__main__":
    unittest.main()
