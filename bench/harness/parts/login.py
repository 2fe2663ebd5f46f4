# SPDX-License-Identifier: MIT OR Apache-2.0
"""Logins. The part measures their cost above a bare bind, and above a bare verification while the directory is away. It
also measures the cost of the account decision, the number of parallel logins, their wait when the directory falls
silent, and the time of a refusal by its reason. Beside it SSSD's pam_sss, which caches passwords and has the same
rules.

Programs have the module in memory, like a program after its first login. Passwords are stored in clear in the
directory, so that no server's hashing is measured. Cached credentials have the cheapest parameters that are allowed.
"""

import contextlib
import json
import os
import re
import time
from pathlib import Path

from .. import directory as d
from ..daemons import Rosterd, Sssd
from ..shared_servers import SLAPD
from ..kdc import REALM, Kdc
from ..ldap import REPLACE, bind_request, message
from ..measure import rounds, summary
from ..servers import Server
from .on_demand import wait_until_ready

SERVICE = "bench"
USERS, CLIENTS = 96, 32
PASSWORD = "secret"
# All of them have this primary group.
GROUP, NOBODY_OF_THEM = "probe", "big"
DENY = "auth required pam_deny.so\naccount required pam_deny.so\n"
SUCCESS = 0
KEPT_WITHIN_S = 60
BACK_WITHIN_S = 60
# Logins after the first one that finds the directory away.
LATER = 5
# A user of the directory, and a name that no user has: their refusals should take equally long.
REFUSED = {"a wrong password": "u0", "an unknown user": "mallory"}
# Ways of stopping and restarting a directory.
WAYS = {
    "is frozen": (Server.freeze, Server.thaw),
    "refuses connections": (Server.kill, Server.start),
}
HASH = re.compile(rb"\$argon2id\$v=19\$m=\d+,t=\d+,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}")


def load(bench):
    """Load shape: programs, data, repetitions."""
    rounds = f"{bench.questions} logins each, {3 if bench.quick else 7} crowds"
    return {"corpora": str(bench.field.large), "users": USERS, "clients": [1, CLIENTS], "rounds": rounds}


def measure(bench):
    if os.geteuid() != 0:
        raise RuntimeError("who logs others in is root: run it as root")
    kinds = [kind for kind in (OfRoster, OfSssd) if bench.has_daemon(kind)]
    faults = []
    result = {"corpus": str(bench.field.large), "users": USERS, "clients": CLIENTS, "faults": faults}
    with bench.field.serving(*SLAPD, bench.field.large) as server:
        allow_logins(server, names(USERS))
        with contextlib.ExitStack() as stack:
            hosts = {kind.name: stack.enter_context(Host(bench, kind, server, faults)) for kind in kinds}
            bench.progress.begin("login: the directory answers")
            result["online"] = online(bench, hosts, server)
            result["account"] = accounts(bench, hosts)
            bench.progress.begin("login: refusals")
            result["refused"] = {name: refusals(host, bench.questions) for name, host in hosts.items()}
            bench.progress.begin(f"login: {CLIENTS} at once")
            result["crowd"] = crowds(bench, hosts)
        bench.progress.begin("login: by Kerberos")
        result["krb5"] = kerberos(bench, server, faults)
        result["offline"], result["away"] = {}, {}
        with Host(bench, OfRoster, server, faults) as roster:
            bench.progress.begin("login: the directory is away")
            result["offline"]["roster"] = roster.without(server, lambda: offline(bench, roster))
            for way in WAYS:
                bench.progress.begin(f"login: the directory {way}")
                series = [roster.goes_away(server, way) for _ in range(3 if bench.quick else 7)]
                result["away"][way] = {"roster": answers(series)}
            # The last thing of this host: afterwards the user is locked out.
            refused = roster.without(server, lambda: refusals(roster, 5))
            result["refused"]["roster, the directory away"] = refused
        if OfSssd in kinds:
            for way in WAYS:
                bench.progress.begin(f"login: the directory {way}, and SSSD")
                # Once each: SSSD checks for the return of a server only from time to time.
                with Host(bench, OfSssd, server, faults) as sssd:
                    result["away"][way]["sssd"] = answers([sssd.goes_away(server, way, returns=False)])
    return result


def names(count):
    return [f"u{number}" for number in range(count)]


def allow_logins(server, users):
    """Sets the password of each user on the running server to the common one."""
    with server.connect() as admin:
        for user in users:
            admin.modify(d.user_dn(user), REPLACE, "userPassword", PASSWORD)


def stack_of(module, options=""):
    return {f"pam.d/{SERVICE}": f"auth required {module} {options}\naccount required {module}\n", "pam.d/other": DENY}


class OfRoster(Rosterd):
    def __init__(self, bench, folder, server):
        rules = {"allowed_groups": [GROUP], "denied_users": [NOBODY_OF_THEM]}
        super().__init__(
            bench, folder, server,
            auth="ldap", allow_clear_user_passwords=True, argon2_target_time="10ms", access=rules,
        )  # fmt: skip

    def files(self):
        return super().files() | stack_of(self.bench.modules / "pam_roster.so", "nodelay")

    def kept(self):
        """Users with cached credentials for offline logins."""
        output = self.folder / "kept"
        ran = self.room.run([self.bench.tools / "roster", "cache", "credentials", "--json"], output)
        return {each["user"] for each in json.loads(output.read_text())} if ran["status"] == 0 else set()

    def working(self):
        """Nanoseconds in which each thread of the backend was on a processor, or waited for one."""
        found = {}
        for task in Path(f"/proc/{self.roles()['backend:corp']}/task").iterdir():
            with contextlib.suppress(OSError):
                on_processor, waiting, _ = (task / "schedstat").read_text().split()
                found[task.name] = int(on_processor) + int(waiting)
        return found

    def hashes(self):
        return [found.decode() for found in HASH.findall((self.state / "domains/corp/credentials.redb").read_bytes())]


class OfKerberos(OfRoster):
    """With a key of this host, the KDC has to prove with each login that it knows that key."""

    def __init__(self, bench, folder, server, kdc, keytab):
        self.keytab = keytab
        Rosterd.__init__(
            self, bench, folder, server,
            auth="krb5", krb5_realm=REALM, krb5_kdcs=[kdc.address], argon2_target_time="10ms",
            krb5_validate="required" if keytab else "off",
        )  # fmt: skip

    def files(self):
        return super().files() | ({"krb5.keytab": self.keytab} if self.keytab else {})


class OfSssd(Sssd):
    responders = "nss, pam"
    # A user that logs in offline gets a message.
    sections = "[pam]\npam_verbosity = 2\n\n"

    def __init__(self, bench, folder, server):
        super().__init__(
            bench, folder, server,
            auth_provider="ldap", ldap_auth_disable_tls_never_use_in_production="true", cache_credentials="true",
            access_provider="simple", simple_allow_groups=GROUP, simple_deny_users=NOBODY_OF_THEM,
        )  # fmt: skip

    def files(self):
        peers = self.bench.peers / "libpam-sss"
        (module,) = peers.glob("usr/lib/*/security/pam_sss.so")
        return super().files() | stack_of(f"/{module.relative_to(peers)}")

    def kept(self):
        """It has written them by the time it answers."""
        return set(names(USERS))

    def working(self):
        """Its verification does not use Argon2id, and is not measured."""
        return {}


class Host:
    """A daemon, and the programs on its host that log users in. All of `users` have logged in once."""

    def __init__(self, bench, kind, server, faults, users=USERS, **settings):
        self.bench, self.server, self.faults, self.users = bench, server, faults, names(users)
        self.daemon = kind(bench, bench.folder(f"login-{kind.name}"), server, **settings)
        self.next = 0

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.daemon)
            self.daemon.start()
            self.ask = stack.enter_context(self.daemon.helper(self.bench.tools / "lookup_latency"))
            wait_until_ready(self.daemon, self.ask)
            self.helper = stack.enter_context(self.daemon.helper(self.bench.tools / "login"))
            self.helper.ask(f"service {SERVICE} {PASSWORD}")
            self._all_log_in()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _all_log_in(self):
        # Passwords beyond the number that it stores at a time are stored after the next login.
        missing, deadline = set(self.users), time.monotonic() + KEPT_WITHIN_S
        while missing:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.daemon.name} keeps no passwords of {missing}: {self.daemon.said()[-2000:]}")
            for user in sorted(missing):
                self.helper.ask(f"authenticate {user}")
                self.helper.ask(f"account {user}")
            time.sleep(0.5)
            missing -= self.daemon.kept()

    def user(self):
        """All users in turn."""
        self.next += 1
        return self.users[self.next % len(self.users)]

    def timed_offline(self):
        """Nanoseconds of a login without the directory; and those above the verification in it, if they can be
        determined."""
        before = self.daemon.working()
        ns = self.timed("authenticate", offline=True)
        # Only the thread that verifies works.
        worked = [worked - before.get(thread, 0) for thread, worked in self.daemon.working().items()]
        return ns, ns - max(worked) if worked else None

    def timed(self, step, offline):
        """Nanoseconds of a step of one user's login. An offline login shows a message."""
        user = self.user()
        ns, status, shown = map(int, self.helper.ask(f"{step} {user}"))
        if status != SUCCESS or (step == "authenticate" and bool(shown) != offline):
            where = "offline" if offline else "online"
            self.faults.append(f"{self.daemon.name}, {where}: {step} {user}: status {status}, {shown} messages")
        return ns

    def wait_until(self, offline):
        deadline = time.monotonic() + BACK_WITHIN_S
        while True:
            _, status, shown = map(int, self.helper.ask(f"authenticate {self.user()}"))
            if status == SUCCESS and bool(shown) == offline:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.daemon.name} does not see the directory come or go: {self.daemon.said()[-2000:]}")
            time.sleep(0.1)

    def without(self, server, work):
        """While the directory is away."""
        server.stop()
        self.wait_until(offline=True)
        result = work()
        server.start()
        self.wait_until(offline=False)
        return result

    def goes_away(self, server, way, returns=True):
        """Logins from the moment at which the directory is gone, before any component has noticed."""
        go, come = WAYS[way]
        go(server)
        try:
            return [self.timed_offline() for _ in range(1 + LATER)]
        finally:
            come(server)
            if returns:
                self.wait_until(offline=False)
                # Followers of its changes are back, too.
                time.sleep(2)


def online(bench, hosts, server):
    """A bare bind and a login in turn, each of another user."""
    found = {}
    for host in hosts.values():
        host.ask.ask(f"connect {server.port} {d.as_reader()}")
    samples = {name: ([], []) for name in hosts}
    for _ in range(bench.questions):
        for name, host in hosts.items():
            bind = bind_request(d.user_dn(host.user()), PASSWORD)
            bare_ns, code = map(int, host.ask.ask(f"bind {message(2, bind).hex()}"))
            if code != SUCCESS:
                host.faults.append(f"a bare bind: result {code}")
            bare, asked = samples[name]
            bare.append(bare_ns)
            asked.append(host.timed("authenticate", offline=False))
    for name, (bare, asked) in samples.items():
        found[name] = paired(bare, asked) | {"asked_ns": summary(asked)}
    return found


def kerberos(bench, server, faults):
    """A bare exchange by the same library, in a program that has it ready, and a login in turn."""
    host_key = "host/client"
    people = [f"addprinc +requires_preauth -pw {PASSWORD} {user}" for user in names(USERS)]
    found = {}
    with Kdc(bench.folder("login-kdc"), [*people, f"addprinc -randkey {host_key}"]) as kdc:
        for name, keytab in (("no key of the host", None), ("a key of the host", kdc.keytab(host_key))):
            with Host(bench, OfKerberos, server, faults, kdc=kdc, keytab=keytab) as host:
                program = ["env", f"KRB5_CONFIG={kdc.config}", bench.tools / "krb5_as_req"]
                with host.daemon.helper(*program) as library:
                    bare, asked = [], []
                    for _ in range(bench.questions):
                        bare_ns, code = map(int, library.ask(f"exchange {host.user()}@{REALM} {PASSWORD}"))
                        if code != SUCCESS:
                            faults.append(f"a bare exchange with the KDC: error {code}")
                        bare.append(bare_ns)
                        asked.append(host.timed("authenticate", offline=False))
                found[name] = paired(bare, asked) | {"asked_ns": summary(asked)}
                found[name] |= crowds(bench, {name: host})[name]
    return found


def paired(bare, asked):
    return {"bare_ns": summary(bare), "above_ns": summary([one - other for one, other in zip(asked, bare)])}


def accounts(bench, hosts):
    samples = {name: [] for name in hosts}
    for _ in range(bench.questions):
        for name, host in hosts.items():
            samples[name].append(host.timed("account", offline=False))
    return {name: summary(each) for name, each in samples.items()}


def refusals(host, count):
    """Wrong passwords, by reason of the refusal, in turn."""
    samples = {reason: [] for reason in REFUSED}
    host.helper.ask(f"service {SERVICE} not-{PASSWORD}")
    for _ in range(count):
        for reason, user in REFUSED.items():
            ns, status, _ = map(int, host.helper.ask(f"authenticate {user}"))
            if status == SUCCESS:
                host.faults.append(f"{host.daemon.name}: {reason} is let in")
            samples[reason].append(ns)
    host.helper.ask(f"service {SERVICE} {PASSWORD}")
    return {reason: summary(each) for reason, each in samples.items()}


def crowds(bench, hosts):
    """Logins without a pause, password and account, of as many programs at once."""
    ms = 2000 if bench.quick else 5000

    def once(name):
        host = hosts[name]
        wall, log_ins, failed, p50, p99 = map(int, host.helper.ask(f"crowd {CLIENTS} {ms} {USERS}"))
        if failed:
            host.faults.append(f"{name}, {CLIENTS} at once: {failed} of {log_ins} logins failed")
        return {"per_s": log_ins / wall * 1e9, "p50_ns": p50, "p99_ns": p99}

    samples = rounds(list(hosts), 3 if bench.quick else 7, float("inf"), once, bench.progress)
    return {
        name: {field: summary([one[field] for one in each]) for field in each[0]} for name, each in samples.items()
    }


def offline(bench, host):
    """A bare verification by the reference implementation, with the same parameters, and a login in turn. rosterd has
    another implementation. So the cost of a login above its own verification is reported, too, from the time that the
    verifying thread worked."""
    hashes = host.daemon.hashes()
    if not hashes:
        raise RuntimeError("nothing is kept of any password")
    bare, own, asked = [], [], []
    for turn in range(bench.questions):
        bare_ns, status = map(int, host.helper.ask(f"verify {hashes[turn % len(hashes)]}"))
        if status != SUCCESS:
            host.faults.append(f"the reference implementation does not take a hash that is kept: {status}")
        ns, above_ns = host.timed_offline()
        bare.append(bare_ns)
        own.append(ns - above_ns)
        asked.append(ns)
    _, _, _, parameters, *_ = hashes[0].split("$")
    return {
        "parameters": parameters,
        "asked_ns": summary(asked),
        "reference": paired(bare, asked),
        "own": paired(own, asked),
    }


def answers(series):
    firsts, later = [ns for (ns, _), *_ in series], [each for _, *rest in series for each in rest]
    found = {"first_ns": summary(firsts) | {"max": max(firsts)}, "later_ns": summary([ns for ns, _ in later])}
    above = [above for _, above in later if above is not None]
    return found | ({"later_above_ns": summary(above)} if above else {})

