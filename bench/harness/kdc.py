# SPDX-License-Identifier: MIT OR Apache-2.0
"""MIT's krb5kdc on loopback, in a private directory."""

import subprocess
import time

from .mount_namespace import ENVIRONMENT, SUPPORT_CPU
from .servers import HOST, free_port

REALM = "LAB.TEST"
START_WITHIN_S = 30


class Kdc:
    """A realm with principals that these commands of kadmin make. Used as a context, in which it runs."""

    def __init__(self, folder, commands):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.address = f"{HOST}:{self.port}"
        self.config = folder / "krb5.conf"
        self.environment = ENVIRONMENT | {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": f"{folder}/kdc.conf"}
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\nrdns = false\n"
            f"dns_canonicalize_hostname = false\n[realms]\n{REALM} = {{\nkdc = {self.address}\n}}\n"
            f"[logging]\nkdc = FILE:/dev/null\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = {self.address}\nkdc_tcp_listen = {self.address}\n[realms]\n"
            f"{REALM} = {{\ndatabase_name = {folder}/db\nkey_stash_file = {folder}/stash\nacl_file = {folder}/acl\n}}\n"
        )
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self.kadmin(commands)

    def kadmin(self, commands):
        done = self._run("kadmin.local", given="\n".join(commands) + "\n")
        if " while " in done.stderr:
            raise RuntimeError(f"kadmin.local failed: {done.stderr[-500:]}")

    def keytab(self, principal, name="keytab"):
        """Keys of a principal, in a file."""
        path = self.folder / name
        self.kadmin([f"ktadd -norandkey -k {path} {principal}"])
        return path

    def _run(self, *argv, given=""):
        done = subprocess.run(argv, input=given, capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            raise RuntimeError(f"{argv[0]} failed: {(done.stderr or done.stdout)[-500:]}")
        return done

    def __enter__(self):
        argv = ["taskset", "-c", str(SUPPORT_CPU), "krb5kdc", "-n", "-P", str(self.folder / "pid")]
        with open(self.folder / "said", "ab") as said:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment
            )
        deadline = time.monotonic() + START_WITHIN_S
        # It writes its number once it listens.
        while not (self.folder / "pid").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"krb5kdc does not come up, see {self.folder}")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
