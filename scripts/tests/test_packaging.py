# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files of packaging/, as the programs of a distribution read them."""

import pathlib
import re
import subprocess
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
SYSUSERS = TREE / "packaging/systemd/roster.sysusers.conf"
AUTHSELECT = TREE / "packaging/pam/authselect"


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


class AuthselectProfile(unittest.TestCase):
    def lines(self, *features):
        """The lines of nsswitch.conf as `authselect select vendor/roster FEATURES` writes them."""
        template = (AUTHSELECT / "nsswitch.conf").read_text()
        chosen = re.sub(r'\{if "([^"]+)":([^}]*)\}', lambda found: found[2] if found[1] in features else "", template)
        self.assertNotIn("{", chosen)
        return {line.split(":")[0]: line.split(":")[1].split() for line in chosen.splitlines()}

    def test_authselect_altfiles_feature_keeps_altfiles(self):
        merge = "[SUCCESS=merge]"
        plain = self.lines()
        self.assertEqual(plain["passwd"], ["files", "roster", "systemd"])
        self.assertEqual(plain["group"], ["files", merge, "roster", merge, "systemd"])
        with_altfiles = self.lines("with-altfiles")
        self.assertEqual(with_altfiles["passwd"], ["files", "altfiles", "roster", "systemd"])
        self.assertEqual(with_altfiles["group"], ["files", merge, "altfiles", merge, "roster", merge, "systemd"])
        self.assertIn("with-altfiles::", (AUTHSELECT / "README").read_text())


if __name__ == "__main__":
    unittest.main()
