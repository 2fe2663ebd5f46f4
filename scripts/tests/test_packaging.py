# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files of packaging/, as the programs of a distribution read them."""

import pathlib
import subprocess
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
SYSUSERS = TREE / "packaging/systemd/roster.sysusers.conf"


class SysusersFile(unittest.TestCase):
    def test_sysusers_creates_user_of_each_role(self):
        with tempfile.TemporaryDirectory() as root:
            pathlib.Path(root, "etc").mkdir()
            command = ["systemd-sysusers", f"--root={root}", SYSUSERS]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            names = {line.split(":")[0] for line in pathlib.Path(root, "etc/passwd").read_text().splitlines()}
        roles = {"roster-" + role for role in ("bus", "publisher", "nss", "pam", "metrics", "nscd", "nscd-helper")}
        self.assertEqual(names, roles | {f"roster-backend-{number}" for number in range(32)})


if __name__ == "__main__":
    unittest.main()
