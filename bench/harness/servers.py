# SPDX-License-Identifier: MIT OR Apache-2.0
"""Real directory servers on loopback, each in a private directory: slapd and 389-ds.

The databases are loaded offline, once for each directory and schema. A killed server comes back with the same data.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import directory as d
from .ldap import BASE as BASE_SCOPE
from .ldap import Connection, LdapError, present, search_request, text_of
from .mount_namespace import ENVIRONMENT, ORDINARY, SUPPORT_CPU, at_priority

START_WITHIN_S = 120
STOP_WITHIN_S = 60
LOAD_WITHIN_S = 1800
ADMIN_PASSWORD = "may do anything"
HOST = "127.0.0.1"
RFC2307BIS_SCHEMA = Path(__file__).resolve().parents[2] / "tests/system/ldap/rfc2307bis.schema"


class Server:
    """Common parts of both: a process in the foreground, a port, an administrator."""

    # Its environment.
    environment = ENVIRONMENT

    def __init__(self, folder, schema):
        self.folder, self.schema = folder, schema
        self.port = free_port()
        self.process = None

    @property
    def uri(self):
        return f"ldap://{HOST}:{self.port}"

    def start(self):
        """Starts it and waits until it answers; returns the instant of the first answer."""
        with open(self.folder / "said", "ab") as said:
            # It ends with this program, also when that is killed.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "taskset", "-c", str(SUPPORT_CPU), *at_priority(ORDINARY),
                 *map(str, self.command())],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment,
            )  # fmt: skip
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                with self.connect():
                    return time.monotonic_ns()
            except (OSError, LdapError) as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not come up, see {self.folder}: {error}") from error
                time.sleep(0.002)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        """Stops the server: its connections stay, and the kernel takes new ones without an answer."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def connect(self):
        """As the administrator."""
        return Connection(HOST, self.port, self.admin, ADMIN_PASSWORD)

    def _run(self, *argv):
        done = subprocess.run(
            list(map(str, argv)), capture_output=True, text=True, env=ENVIRONMENT, timeout=LOAD_WITHIN_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"{argv[0]} failed: {(done.stderr or done.stdout)[-500:]}")


class Slapd(Server):
    name = "slapd"
    admin = f"cn=admin,{d.BASE}"

    def load(self, ldif):
        (self.folder / "db").mkdir()
        schemas = [f"/etc/ldap/schema/{name}.schema" for name in ("core", "cosine", "inetorgperson")]
        schemas.append(RFC2307BIS_SCHEMA if self.schema == d.RFC2307BIS else "/etc/ldap/schema/nis.schema")
        includes = "".join(f"include {path}\n" for path in schemas)
        # No client waits for its disk, which is out of scope. slapd dedicates a thread to each client that follows
        # changes, hence so many. Every other limit is lifted.
        (self.folder / "slapd.conf").write_text(
            f"{includes}pidfile {self.folder}/pid\nargsfile {self.folder}/args\nmodulepath /usr/lib/ldap\n"
            "moduleload back_mdb\nmoduleload back_monitor\nmoduleload syncprov\nthreads 16\nsizelimit unlimited\n"
            f'database mdb\nsuffix "{d.BASE}"\nrootdn "{self.admin}"\nrootpw "{ADMIN_PASSWORD}"\n'
            f"directory {self.folder}/db\nmaxsize 8589934592\ndbnosync\n"
            "index objectClass,uid,cn,uidNumber,gidNumber,memberUid,member,uniqueMember,entryUUID,entryCSN eq\n"
            "access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n"
            "overlay syncprov\nsyncprov-sessionlog 10000\n"
            f'database monitor\nrootdn "{self.admin}"\naccess to * by * read\n'
        )
        self._run("slapadd", "-q", "-f", self.folder / "slapd.conf", "-l", ldif)

    def searches(self, admin):
        """The number of completed operations."""
        base = "cn=Search,cn=Operations,cn=Monitor"
        (entry,) = admin.ask(search_request(base, present("objectClass"), ["monitorOpCompleted"], BASE_SCOPE))
        return int(text_of(entry, "monitorOpCompleted"))

    def command(self):
        return ["slapd", "-d", "0", "-h", self.uri, "-f", self.folder / "slapd.conf"]


class Ds389(Server):
    """Its configuration is the package's own template, filled in here: `dscreate` fills in the same
    one, but only for /etc and for systemd."""

    name = "389-ds"
    admin = "cn=Directory Manager"
    share = Path("/usr/share/dirsrv/data/template-dse.ldif")
    etc = Path("/etc/dirsrv")

    def load(self, ldif):
        # A unique name: the server derives the name of its semaphore in /dev/shm from it.
        self.config = self.folder / f"bench-{self.port}"
        for name in ("log", "db", "bak", "ldif", "run", "lock", "tmp"):
            (self.folder / name).mkdir()
        (self.config / "schema").mkdir(parents=True)
        for name in ("slapd-collations.conf", "certmap.conf"):
            shutil.copy(self.etc / "config" / name, self.config)
        shutil.copy(self.etc / "schema/99user.ldif", self.config / "schema")
        (self.config / "dse.ldif").write_text(self._configuration())
        # Its administrator's rights do not count for others: the base entry, which comes first, lists the readers.
        readable = self.folder / "load.ldif"
        aci = f'aci: (targetattr="*")(version 3.0; acl "reader"; allow (read, search, compare) userdn="ldap:///{d.READER}";)'
        with open(ldif) as text, readable.open("w") as output:
            for line in text:
                output.write(line if line != "dc: example\n" else f"{line}{aci}\n")
                if line == "dc: example\n":
                    break
            shutil.copyfileobj(text, output)
        self._run("ns-slapd", "ldif2db", "-n", "userroot", "-D", self.config, "-i", readable)
        readable.unlink()

    def command(self):
        return ["ns-slapd", "-d", "0", "-D", self.config, "-i", self.folder / "run/pid"]

    def stop(self):
        super().stop()
        Path(f"/dev/shm/sem.{self.config.name}.stats").unlink(missing_ok=True)

    def _configuration(self):
        folder, config = self.folder, self.config
        values = {
            "config_dir": config, "cert_dir": config, "schema_dir": config / "schema", "inst_dir": folder,
            "log_dir": folder / "log", "db_dir": folder / "db", "db_home_dir": folder / "db",
            "bak_dir": folder / "bak", "ldif_dir": folder / "ldif", "run_dir": folder / "run",
            "lock_dir": folder / "lock", "tmp_dir": folder / "tmp", "db_lib": "mdb", "fqdn": "localhost",
            "ds_port": self.port, "ds_user": pwd.getpwuid(os.geteuid()).pw_name, "rootdn": self.admin,
            "ds_passwd": f"{{CLEAR}}{ADMIN_PASSWORD}", "ds_suffix": d.BASE, "ldapi_enabled": "off",
            "ldapi_autobind": "off", "ldapi": folder / "ldapi",
        }  # fmt: skip
        text = re.sub("%(\\w+)%", lambda found: str(values.get(found[1], found[0])), self.share.read_text())
        # groupOfMembers is not among its schema; the default limits are for clients that search.
        unlimited = "nsslapd-listenhost: 127.0.0.1\nnsslapd-sizelimit: -1\nnsslapd-schemacheck: off\nnsslapd-port:"
        text = text.replace("nsslapd-port:", unlimited, 1)
        text = text.replace("nsslapd-mode: 600\n", "nsslapd-mode: 600\nnsslapd-lookthroughlimit: -1\n", 1)
        # Plug-ins that let clients follow changes and learn the key of a deleted entry.
        for plugin, more in (
            ("Content Synchronization", ""),
            ("Retro Changelog Plugin", "nsslapd-attribute: nsuniqueid:targetUniqueId\n"),
        ):
            head, found, tail = text.partition(f"dn: cn={plugin},cn=plugins")
            if not found:
                raise RuntimeError(f"{self.share} has no plug-in {plugin}")
            off, on = "nsslapd-pluginenabled: off\n", f"nsslapd-pluginenabled: on\n{more}"
            text = head + found + tail.replace(off, on, 1)
        entries = [entry.strip() for entry in text.split("\n\n") if entry.strip()]
        return "\n\n".join([*entries, BACKEND_OF_389DS])


BACKEND_OF_389DS = f"""\
dn: cn=userroot,cn=ldbm database,cn=plugins,cn=config
objectClass: top
objectClass: extensibleObject
objectClass: nsBackendInstance
cn: userroot
nsslapd-suffix: {d.BASE}

dn: cn="{d.BASE}",cn=mapping tree,cn=config
objectClass: top
objectClass: extensibleObject
objectClass: nsMappingTree
cn: "{d.BASE}"
nsslapd-state: backend
nsslapd-backend: userroot
"""


def free_port():
    """Outside the range that the kernel gives to clients, so that it stays free while its server is down."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        if port in _taken:
            continue
        with socket.socket() as trial:
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        _taken.add(port)
        return port
    raise RuntimeError("no free port")


_taken = set()
