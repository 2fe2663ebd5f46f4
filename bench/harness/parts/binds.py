# SPDX-License-Identifier: MIT OR Apache-2.0
"""A directory mirrored whole by each bind: a password over TLS, and the Kerberos key of the host, which encrypts the
connection without TLS. Both read the same slapd, in turns.
"""

import subprocess

from .. import directory as d
from ..daemons import Rosterd
from ..kdc import REALM, Kdc
from ..measure import summary
from ..mount_namespace import ENVIRONMENT
from ..servers import HOST, Slapd, free_port
from .mirror import first_mirror

CLIENT = "host/bench.lab.test"
# Names of the two kinds, and of their ratio's parts.
PASSWORD, KEY = "password over TLS", "key of the host, no TLS"


def load(bench):
    """Load shape: programs, data, repetitions."""
    return {"corpora": str(bench.field.large), "clients": "1 daemon", "rounds": f"{rounds(bench)} mirrors by each bind"}


def rounds(bench):
    return bench.mirrors if bench.quick else 2 * bench.mirrors + 1


def measure(bench):
    shape = bench.field.large
    result = {"corpus": str(shape), "faults": []}
    service = f"ldap/{HOST}"
    with Kdc(bench.folder("binds-kdc"), [f"addprinc -randkey {name}" for name in (CLIENT, service)]) as kdc:
        server = SecureSlapd(bench.folder("binds-slapd"), kdc, kdc.keytab(service, "server.keytab"))
        bench.progress.begin(f"slapd with TLS and GSSAPI: loading {shape}")
        server.prepare(bench.field.directory(shape))
        keytab = kdc.keytab(CLIENT, "client.keytab")
        keytab.chmod(0o600)
        by_key = {
            "bind": "gssapi", "bind_dn": None, "bind_password_file": None, "allow_clear_password": None,
            "krb5_realm": REALM, "krb5_kdcs": [kdc.address], "krb5_keytab": str(keytab),
        }  # fmt: skip
        by_password = {"uris": [server.tls_uri], "tls_ca": str(server.certificate)}
        server.start()
        try:
            walls = {PASSWORD: [], KEY: []}
            cpus = {PASSWORD: [], KEY: []}
            for turn in range(rounds(bench)):
                bench.progress.begin(f"mirrors by each bind, round {turn + 1}")
                for name, settings in ((PASSWORD, by_password), (KEY, by_key)):
                    with Rosterd(bench, bench.folder("binds"), server, **settings) as roster:
                        wall, cpu_s = first_mirror(bench, roster)
                        walls[name].append(wall)
                        cpus[name].append(cpu_s)
        finally:
            server.stop()
    for name in walls:
        result[name] = {"wall_ns": summary(walls[name]), "cpu_until_snapshot_s": summary(cpus[name])}
    return result


class SecureSlapd(Slapd):
    """A slapd with a certificate, and with a key for GSSAPI that maps the host to the reader."""

    def __init__(self, folder, kdc, keytab):
        folder.mkdir(parents=True)
        super().__init__(folder, d.RFC2307)
        self.tls_port = free_port()
        self.certificate = folder / "certificate.pem"
        self.environment = ENVIRONMENT | {"KRB5_CONFIG": str(kdc.config), "KRB5_KTNAME": str(keytab)}

    @property
    def tls_uri(self):
        return f"ldaps://{HOST}:{self.tls_port}"

    def prepare(self, directory):
        """Loads a directory, and makes the certificate."""
        ldif = self.folder / "load"
        directory.write_ldif(ldif, self.schema)
        self.load(ldif)
        ldif.unlink()
        key = self.folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", "/CN=bench", "-addext", f"subjectAltName=IP:{HOST}",
             "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", self.certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        conf = self.folder / "slapd.conf"
        lines = (
            f"TLSCACertificateFile {self.certificate}\nTLSCertificateFile {self.certificate}\n"
            f"TLSCertificateKeyFile {key}\nsasl-host {HOST}\nsasl-realm {REALM}\n"
            f'authz-regexp "uid=host/[^,]*,.*cn=gssapi,cn=auth" "{d.READER}"\ndatabase mdb\n'
        )
        conf.write_text(conf.read_text().replace("database mdb\n", lines, 1))

    def command(self):
        return ["slapd", "-d", "0", "-h", f"{self.uri} {self.tls_uri}", "-f", self.folder / "slapd.conf"]
