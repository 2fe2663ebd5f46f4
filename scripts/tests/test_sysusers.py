# SPDX-License-Identifier: MIT OR Apache-2.0
"""systemd accepts each line of the file with the users of the roles."""

import pathlib
import subprocess
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
FILE = TREE / "packaging/systemd/roster.sysusers.conf"


class Sysusers(unittest.TestCase):
    def test_sysusers_creates_the_user_of_each_line(self):
        expected = sorted(line.split()[1] for line in FILE.read_text().splitlines() if line.startswith("u "))
        with tempfile.TemporaryDirectory() as root:
            (pathlib.Path(root) / "etc").mkdir()
            done = subprocess.run(
                ["systemd-sysusers", f"--root={root}", str(FILE)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            entries = (pathlib.Path(root) / "etc/passwd").read_text().splitlines()
        self.assertEqual(sorted(entry.split(":")[0] for entry in entries), expected)
        self.assertEqual(len(expected), 39)


if __name__ == "__main__":
    unittest.main()
