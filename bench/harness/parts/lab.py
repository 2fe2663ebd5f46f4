# SPDX-License-Identifier: MIT OR Apache-2.0
"""roster-lab beside other generators: the rate of requests from one processor of the client.

The server has a dedicated processor, and so does the client. If a server is the slower of the two, the measure is the
requests for each second that the client worked.
"""

import json
import os
import re
import resource
import subprocess
import sys
import time

from ..kdc import REALM, Kdc
from ..measure import percentile, rounds, summary
from ..mount_namespace import ALL_CPUS, ENVIRONMENT, MEASURED_CPU, SUPPORT_CPU
from ..servers import Server, free_port

USERS, HOSTS = 1000, 1000
BASE = "dc=example,dc=com"
# Padded, for ldclt.
DN = "uid=u{000..%d},ou=people,%s" % (USERS - 1, BASE)
# More connections a second than one address has ports.
SOURCES = ",".join(f"127.0.0.{last}" for last in range(2, 12))
WAYS = ("reuse", "new")
OURS, WORKER = "roster-lab", "roster-lab under Locust"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
WARM_UP_S = 0.5
DELAYS = {"rate": 1000, "seconds": 10}


def load(bench):
    """Load shape: programs, data, repetitions."""
    lab = Lab(bench)
    return {
        "corpora": f"{USERS} users, {HOSTS} hosts", "clients": "16 virtual users (LDAP), 100 (DNS)",
        "rate": f"closed loop; {DELAYS['rate']}/s for known delays", "rounds": f"{lab.repetitions} of {lab.seconds} s",
    }  # fmt: skip


def measure(bench):
    return Lab(bench).measure()


class Slapd(Server):
    """A thousand users with passwords that cost nothing to check."""

    name, admin = "slapd", f"cn=admin,{BASE}"

    def __init__(self, folder):
        super().__init__(folder, None)
        (folder / "db").mkdir(parents=True)
        includes = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "inetorgperson"))
        (folder / "slapd.conf").write_text(
            f"{includes}pidfile {folder}/pid\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
            f'database mdb\nsuffix "{BASE}"\nrootdn "{self.admin}"\nrootpw "may do anything"\ndirectory {folder}/db\n'
            "dbnosync\nindex uid eq\naccess to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n"
        )
        ldif = f"dn: {BASE}\nobjectClass: domain\ndc: example\n\n"
        ldif += f"dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n"
        ldif += "".join(
            f"dn: uid=u{n:03},ou=people,{BASE}\nobjectClass: inetOrgPerson\ncn: u\nsn: u\nuserPassword: secret\n\n"
            for n in range(USERS)
        )
        (folder / "users.ldif").write_text(ldif)
        self._run("slapadd", "-q", "-f", folder / "slapd.conf", "-l", folder / "users.ldif")

    def command(self):
        return ["slapd", "-d", "0", "-h", self.uri, "-f", self.folder / "slapd.conf"]


class Lab:
    def __init__(self, bench, seconds=None, warm_up_s=WARM_UP_S):
        self.bench, self.warm_up_s = bench, warm_up_s
        self.seconds = seconds or (2 if bench.quick else 5)
        self.repetitions = 3 if bench.quick else 7
        self.python = bench.locust and bench.locust / "bin/python"

    def measure(self):
        parts = {"binds": self.binds, "dns": self.dns, "krb5": self.krb5, "commands": self.commands}
        results = {}
        for name, part in (parts | {"delays": self.delays}).items():
            self.bench.progress.begin(f"roster-lab: {name}")
            results[name] = part()
        return results

    def rounds(self, contenders, once):
        """For each contender, a summary of each field that `once` returns."""
        samples = rounds(list(contenders), self.repetitions, float("inf"), once, self.bench.progress)
        return {
            name: {field: summary([one[field] for one in each]) for field in each[0]} for name, each in samples.items()
        }

    def run(self, argv, cpus=MEASURED_CPU, good=(0,), **more):
        """The output, and the seconds that the program and its children were on a processor."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = ["taskset", "-c", str(cpus), *map(str, argv)]
        more.setdefault("env", ENVIRONMENT)
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **more)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ran.returncode not in good:
            raise RuntimeError(f"{' '.join(argv)}: {(ran.stderr or ran.stdout)[-500:]}")
        return ran.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def lab(self, *options, cpus=MEASURED_CPU, seconds=None):
        argv = [self.bench.tools / "roster-lab", *options]
        # In front of a command.
        place = argv.index("--") if "--" in argv else len(argv)
        how = ["--duration", seconds or self.seconds, "--warm-up", str(self.warm_up_s), "--probe", "0", "--quiet", "--json", "-"]
        out, _ = self.run(argv[:place] + how + argv[place:], cpus)
        report = json.loads(out)
        if report["failures"]:
            raise RuntimeError(f"{report['failures']} of {report['requests']} failed: {report['failures_by_kind']}")
        return report

    def binds(self):
        self.server = Slapd(self.bench.folder("lab-slapd"))
        self.server.start()
        try:
            contenders = [OURS, WORKER, "Locust, a raw socket", "Locust, ldap3"]
            return {
                way: self.rounds(contenders + (["ldclt"] if way == "new" else []), lambda name: self.bind(name, way))
                for way in WAYS
            }
        finally:
            self.server.stop()

    def bind(self, name, way):
        ask = {OURS: self.bind_by_lab, WORKER: self.bind_by_worker, "ldclt": self.bind_by_ldclt}
        return ask.get(name, self.bind_by_locust)(name, way)

    def bind_by_lab(self, _, way):
        options = ["--uri", self.server.uri, "--dn", DN, "--password", "secret", "--connections", way]
        report = self.lab("ldap", *options, "--source", SOURCES)
        return counted(report["rate"], report["client_cpu_us_per_op"])

    def bind_by_ldclt(self, *_):
        host, port = self.server.uri.removeprefix("ldap://").split(":")
        how = "bindonly,bindeach,close,randombinddn,randombinddnlow=0,randombinddnhigh=999"
        argv = ["ldclt", "-h", host, "-p", port, "-D", f"uid=uXXX,ou=people,{BASE}", "-w", "secret"]
        began = time.monotonic()
        # Some of its threads may end for want of ports, which it has no cure for.
        out, cpu = self.run([*argv, "-e", how, "-n", "8", "-N", "1"], good=(0, 4))
        took = time.monotonic() - began
        total = int(re.findall(r"total: *(\d+)", out)[-1])
        return counted(total / took, cpu * 1e6 / total)

    def bind_by_locust(self, name, way):
        settings = {"LAB_USERS": name.split()[-1].replace("socket", "raw"), "LAB_CONNECTIONS": way}
        environment = os.environ | settings | {"LAB_URI": self.server.uri}
        argv = [self.python, "-B", "-m", "locust", "-f", self.bench.here / "lab_locust.py", "--headless", "--only-summary", "--json"]
        argv += ["-u", "16", "-r", "1000", "-t", f"{self.seconds}s", "--loglevel", "ERROR"]
        out, cpu = self.run(argv, env=environment)
        (entry,) = json.loads(out[out.index("[") :])
        # With one connection for each request, one sometimes finds no free port.
        if entry["num_failures"] > entry["num_requests"] / 1000:
            raise RuntimeError(f"{name}: {entry['num_failures']} of {entry['num_requests']} failed")
        seconds = entry["last_request_timestamp"] - entry["start_time"]
        return counted(entry["num_requests"] / seconds, cpu * 1e6 / entry["num_requests"])

    def bind_by_worker(self, _, way):
        """The master, Locust's own, is on the server's processor."""
        folder = self.bench.folder("lab-locust")
        folder.mkdir(parents=True)
        options = {"uri": self.server.uri, "dn": DN, "password": "secret", "connections": way, "probe": 0}
        body = "".join(f"    {name} = {value!r}\n" for name, value in options.items())
        (folder / "locustfile.py").write_text(f"from roster_locust import LdapUser\n\nclass Binds(LdapUser):\n{body}")
        port = str(free_port())
        argv = ["taskset", "-c", str(SUPPORT_CPU), self.python, "-B", "-m", "locust", "--master", "--headless", "--only-summary", "--json"]
        argv += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "1"]
        argv += ["-u", "16", "-r", "1000", "-t", f"{self.seconds}s", "--loglevel", "ERROR"]
        environment = os.environ | {"PYTHONPATH": str(self.bench.here.parent / "python/src")}
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd=folder, env=environment, stdout=pipe, stderr=sys.stderr, text=True) as master:
            worker = [self.bench.tools / "roster-lab", "worker", "--master", f"127.0.0.1:{port}", "--source", SOURCES]
            _, cpu = self.run(worker)
            out = master.stdout.read()
        (entry,) = json.loads(out[out.index("[") :])
        if entry["num_failures"]:
            raise RuntimeError(f"{WORKER}: {entry['num_failures']} of {entry['num_requests']} failed")
        seconds = entry["last_request_timestamp"] - entry["start_time"]
        return counted(entry["num_requests"] / seconds, cpu * 1e6 / entry["num_requests"])

    def dns(self):
        folder = self.bench.folder("lab-dns")
        folder.mkdir(parents=True)
        (folder / "hosts").write_text("".join(f"192.0.{n // 250}.{n % 250 + 1} h{n}.lab.test\n" for n in range(HOSTS)))
        (folder / "names").write_text("".join(f"h{n}.lab.test A\n" for n in range(HOSTS)))
        port = str(free_port())
        argv = ["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--addn-hosts={folder}/hosts"]
        argv += [f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces", "--local=/lab.test/"]
        argv += [f"--pid-file={folder}/pid", "--conf-file=/dev/null", "--user=root"]
        with started(argv):

            def once(name):
                if name == OURS:
                    name = "h{0..%d}.lab.test" % (HOSTS - 1)
                    report = self.lab("dns", "--server", f"127.0.0.1:{port}", "--name", name, "--users", "100")
                    return counted(report["rate"], report["client_cpu_us_per_op"])
                argv = ["dnsperf", "-s", "127.0.0.1", "-p", port, "-d", folder / "names", "-q", "100"]
                out, cpu = self.run([*argv, "-l", self.seconds])
                total = int(re.search(r"Queries completed: *(\d+)", out)[1])
                return counted(float(re.search(r"Queries per second: *([\d.]+)", out)[1]), cpu * 1e6 / total)

            return self.rounds([OURS, "dnsperf"], once)

    def krb5(self):
        people = [f"addprinc -requires_preauth -pw secret u{number}" for number in range(100)]
        with Kdc(self.bench.folder("lab-kdc"), people) as kdc:

            def once(_):
                options = ["--kdc", kdc.address, "--realm", REALM, "--principal", "u{0..99}"]
                report = self.lab("krb5", *options, "--no-preauth")
                return counted(report["rate"], report["client_cpu_us_per_op"])

            return self.rounds([OURS], once)

    def commands(self):
        loop = self.bench.tools / "spawn_loop"

        def once(name):
            if name == OURS:
                return {"rate": self.lab("command", "--users", "2", "--", "true", cpus=ALL_CPUS)["rate"]}
            if name == "posix_spawn":
                out, _ = self.run([loop, self.seconds, "2", "true"], ALL_CPUS)
                return {"rate": int(out) / self.seconds}
            out = self.bench.answer
            self.run(["hyperfine", "-N", "--style", "none", "--export-json", out, "true"], ALL_CPUS)
            return {"rate": 1 / json.loads(out.read_text())["results"][0]["mean"]}

        return self.rounds([OURS, "posix_spawn", "hyperfine"], once)

    def delays(self):
        """Percentiles of a server with known delays, which once stalls for a second."""
        server = [sys.executable, "-B", self.bench.here / "lab_delays.py"]
        found = {}
        for name, stalls_at in (("even", 1e9), ("with a stall of 1 s", 4)):
            argv = ["taskset", "-c", str(SUPPORT_CPU), *map(str, server), str(stalls_at)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
                try:
                    port = process.stdout.readline().strip()
                    options = ["--server", f"127.0.0.1:{port}", "--name", "h{n}.lab.test"]
                    options += ["--rate", DELAYS["rate"], "--users", "4000"]
                    latencies = self.lab("dns", *options, seconds=DELAYS["seconds"])["latency_ms"]
                finally:
                    process.terminate()
                known = truth(process.stdout.read())
            found[name] = {
                share: {"known_ms": known[share], "told_ms": latencies[share], "off": abs(latencies[share] / known[share] - 1)}
                for share in PERCENTILES
            }
        return found


def truth(told):
    """The percentiles from the server's record. Requests are due at even distances. The earliest request, relative to
    its due time, marks the begin."""
    rate = DELAYS["rate"]
    lines = (line.split() for line in told.split("\n") if line)
    queries = [(int(number), float(came), float(went)) for number, came, went in lines]
    begin = min(came - number / rate for number, came, _ in queries)
    # The warm-up does not count.
    took = sorted(went - begin - n / rate for n, _, went in queries if n >= WARM_UP_S * rate)
    return {name: percentile(took, share) * 1e3 for name, share in PERCENTILES.items()}


def counted(rate, cpu_us):
    return {"rate": rate, "client_cpu_us": cpu_us, "per_client_core": 1e6 / cpu_us}


class started:
    """A server on its processor, ended behind the block."""

    def __init__(self, argv, env=ENVIRONMENT):
        self.argv, self.env = ["taskset", "-c", str(SUPPORT_CPU), *map(str, argv)], env

    def __enter__(self):
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self.argv, stdin=quiet, stdout=quiet, stderr=quiet, env=self.env)
        time.sleep(1)
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.argv[3]} has ended with {self.process.returncode}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
