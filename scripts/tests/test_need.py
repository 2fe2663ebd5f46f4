# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/need: how Rust gets onto a machine that lacks it, with stand-ins for apt-get, rustup and the rest."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLCHAIN = re.search(r'^channel = "(.*)"$', (TREE / "rust-toolchain.toml").read_text(), re.MULTILINE).group(1)
# Other programs that the script runs. No cargo is among them.
TOOLS = "bash cat chmod cut dirname grep head ln mktemp realpath rm sed sort touch".split()
# Writes down its call. A package or a toolchain is here after its installation.
STAND_IN = """#!/bin/bash
call="${0##*/} $*"
printf '%s\\n' "$call" >>"$CALLS"
case $call in
"apt-cache policy rustup") echo "  Candidate: $CANDIDATE" ;;
"apt-get "*" install "*) ln -s stand-in "$BIN/rustup" && ln -s stand-in "$BIN/rustc" ;;
"rustup run "*) [ -e "$BIN/installed" ] ;;
"rustup toolchain install "*) touch "$BIN/installed" ;;
"rustc --version") [ -e "$BIN/installed" ] && echo "rustc 1.999.0 (0 2026-01-01)" ;;
dpkg-query*) exit 1 ;;
esac
"""
# Root, with the right to install packages, and a /usr/sbin for the script to write to.
AS_ROOT = "unshare --user --map-root-user --mount sh -c".split()
OTHER_SBIN = 'mount -t tmpfs tmpfs /usr/sbin && exec "$@"'
# No root: as in a user namespace without a map.
AS_OTHER = "unshare --user".split()


class Rust(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = pathlib.Path(folder.name)
        self.bin.chmod(0o777)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        (self.bin / "stand-in").write_text(STAND_IN)
        (self.bin / "stand-in").chmod(0o755)
        (self.bin / "calls").touch()
        (self.bin / "calls").chmod(0o666)
        self.add_stand_ins("apt-cache", "apt-get", "dpkg-query", "gcc")

    def add_stand_ins(self, *names):
        for name in names:
            (self.bin / name).symlink_to("stand-in")

    def need(self, purpose, candidate="1.27.1-4", root=True):
        """Exit status, output and calls of `scripts/need`, with nothing else in its PATH."""
        environment = {
            "PATH": str(self.bin),
            "CARGO_HOME": "/nonexistent",
            "CARGO_TARGET_DIR": str(self.bin / "target"),
            "BIN": str(self.bin),
            "CALLS": str(self.bin / "calls"),
            "CANDIDATE": candidate,
        }
        namespace = [*AS_ROOT, OTHER_SBIN, "sh"] if root else AS_OTHER
        script = [shutil.which("env"), "-i", *(f"{name}={value}" for name, value in environment.items())]
        command = [*namespace, *script, str(self.bin / "bash"), str(TREE / "scripts/need"), purpose]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.returncode, done.stderr, (self.bin / "calls").read_text().splitlines()

    def test_rustup_package_and_toolchain_are_installed(self):
        status, output, calls = self.need("build")
        self.assertEqual(status, 0, output)
        install = next(call for call in calls if " install " in call)
        self.assertRegex(install, r"^apt-get .* install -y --no-install-recommends rustup ca-certificates\b")
        self.assertEqual(
            calls[calls.index(install) + 1 :],
            [
                f"rustup run {TOOLCHAIN} rustc --version",
                f"rustup toolchain install {TOOLCHAIN} --profile minimal",
                "rustc --version",
            ],
        )

    def test_demo_and_test_install_rustup_first(self):
        for purpose in ("demo", "test"):
            with self.subTest(purpose):
                _, output, _ = self.need(purpose)
                self.assertRegex(output, "^==> installing Debian packages: rustup ca-certificates")
                for name in ("rustup", "rustc", "installed"):
                    (self.bin / name).unlink()

    def test_other_users_get_the_apt_line(self):
        status, output, calls = self.need("build", root=False)
        self.assertEqual(status, 1)
        self.assertRegex(output, r"\n  sudo apt-get install -y --no-install-recommends rustup ca-certificates\b")
        self.assertEqual([call for call in calls if "install" in call or "update" in call], [])

    def test_no_rustup_package_prints_one_line(self):
        for names in ("apt-cache", "apt-get"), ():
            status, output, calls = self.need("build", candidate="(none)")
            self.assertEqual(status, 1)
            commands = re.findall(r"^  (.*)$", output, re.MULTILINE)
            self.assertEqual(len(commands), 1, output)
            self.assertTrue(commands[0].startswith("curl ") and "https://sh.rustup.rs" in commands[0], output)
            self.assertEqual([call for call in calls if " install " in call], [])
            # The second time, as on a machine without apt-get.
            for name in names:
                (self.bin / name).unlink()

    def test_present_rustup_installs_only_the_toolchain(self):
        self.add_stand_ins("cargo", "rustc", "rustup")
        _, output, calls = self.need("build")
        self.assertIn(f"rustup toolchain install {TOOLCHAIN} --profile minimal", calls, output)
        self.assertNotIn("rustup", " ".join(call for call in calls if call.startswith("apt")))

    def test_present_toolchain_is_left_alone(self):
        self.add_stand_ins("cargo", "rustc", "rustup")
        (self.bin / "installed").touch()
        _, output, calls = self.need("build")
        self.assertEqual([call for call in calls if "install" in call and "rust" in call], [], output)


if __name__ == "__main__":
    unittest.main()
