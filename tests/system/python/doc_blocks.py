# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks the fenced blocks of documents by their tags. Prints each mistake and a count, and exits with 1 after mistakes.

`run`: the commands run in an empty directory, and the output is compared.
`host`: the commands run on a host that the caller has booted. The program that reads a configuration parses it.
Commands in `NOT_RUN` need more than that host has. Their programs parse them instead, with --help added.
`show: REASON`: not checked. At most 15 % of all blocks.

usage: doc_blocks.py ROOT PROGRAMS MODULE      the source tree, the directory of programs, the directory of the module
       doc_blocks.py --on-host ROOT ENTER…     runs the commands of `host` blocks; ENTER… runs a command on the host
"""

import configparser
import os
import re
import shlex
import subprocess
import sys
import tempfile
from typing import NamedTuple

import yaml

SHOWN_MAX = 0.15
# Blocks that a test of their own reads, by page and language.
OWN_TESTS = {
    ("docs/reference/directory-servers.md", "sh"): "doc_directory_servers",
    ("docs/reference/directory-servers.md", "ldif"): "doc_directory_servers",
    ("docs/reference/directory-servers.md", "slapd.conf"): "doc_directory_servers",
    ("docs/internals/exec-protocol.md", "toml"): "exec_toml.rs of roster-rootwrap",
    ("docs/how-to/logins.md", "pam"): "pam_stacks",
}
ROSTER_PROGRAMS = {"roster", "rosterd", "roster-lab", "roster-rootwrap", "roster-rootwrap-daemon", "roster-exec"}
OTHER_PROGRAMS = set(
    "/usr/lib/apt/apt-helper ansible-galaxy apt-get authselect bpftrace cargo curl diff dnf docker echo export getent grep "
    "hostname id install jq journalctl kadmin kinit klist ln make pamtester "
    "pam-auth-update "
    "restorecon semodule skopeo sort systemctl systemd-sysusers systemd-tmpfiles tee tr".split()
)


# Commands that the booted host cannot run: words at their beginning, and the missing part.
NOT_RUN = {
    ("/usr/lib/apt/apt-helper",): "a repository of packages",
    ("ansible-galaxy",): "Ansible",
    ("apt-get",): "a repository of packages",
    ("authselect",): "a host with authselect",
    ("bpftrace",): "tracing of the machine's kernel",
    ("cargo",): "a build",
    ("dnf",): "a repository of packages",
    ("docker",): "images from a registry",
    ("getent", "-s", "ldap"): "nslcd",
    ("kadmin",): "a KDC",
    ("kinit",): "a KDC",
    ("klist",): "a keytab",
    ("make",): "a build",
    ("pamtester",): "the password of a user",
    ("restorecon",): "SELinux",
    ("roster", "access", "alice", "--password"): "the password of a user",
    ("roster", "domain", "compare-ids"): "a cache of SSSD",
    ("roster", "migrate-config", "--ignore-gpo"): "a configuration of SSSD for Active Directory",
    ("roster", "status", "--run-dir"): "a daemon that the reader starts",
    ("roster-lab", "bisect"): "versions of a server",
    ("roster-lab", "check"): "a server to load",
    ("roster-lab", "command", "--users"): "a minute for each of six runs",
    ("roster-lab", "dns"): "a server to load",
    ("roster-lab", "krb5"): "a server to load",
    ("roster-lab", "ldap"): "a server to load",
    ("roster-lab", "nss"): "users of a generated corpus",
    ("roster-lab", "pam"): "the password of a user",
    ("roster-lab", "schemes"): "a server to load",
    ("roster-lab", "trace"): "tracing of the machine's kernel",
    ("rosterd",): "a configuration of the reader",
    ("scripts/package-image",): "a build",
    ("scripts/package-rpm",): "a build",
    ("scripts/prove",): "a build",
    ("semodule",): "SELinux",
    ("skopeo",): "images from a registry",
}
# Exit statuses of commands beside 0, by the words at their beginning.
STATUSES = {
    # Findings about the machine, which lacks AppArmor and SELinux, and about files that other blocks change.
    ("roster", "doctor"): {1},
    ("roster", "status"): {1},
    # There is a change to make.
    ("roster", "enable", "--dry-run"): {2},
    ("roster", "disable", "--dry-run"): {2},
    # No removal waits.
    ("roster", "domain", "approve-removals"): {1},
    # No program uses a deleted module, and no entry of the journal matches.
    ("grep",): {1},
    ("journalctl",): {1},
}
# Commands that prepare the host for the blocks of a page.
PREPARATIONS = {
    "docs/how-to/moving-from-sssd.md": "rm /etc/roster/roster.toml && install -D -m 600 sssd.conf /etc/sssd/sssd.conf",
    "docs/how-to/moving-from-nslcd.md": "rm /etc/roster/roster.toml && cp nslcd.conf /etc",
    "docs/how-to/read-a-report.md": "roster-lab command --duration 1 --users 2 --quiet --json run.json -- true",
}
# Before each block the configuration is that of the start.
RESTORE = "rm -rf /etc/roster /etc/sssd /etc/nslcd.conf && cp -a /etc/roster.start /etc/roster && systemctl restart rosterd"
COMMAND_TIMEOUT_S = 60


def begins_with(words, table):
    """The value in a table for the words at the beginning of a command."""
    return next((value for first, value in table.items() if tuple(words[: len(first)]) == first), None)


def private(path, flags):
    return os.open(path, flags, 0o600)


class Block(NamedTuple):
    page: str
    line: int
    language: str
    tag: str
    text: str


def blocks(root):
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True)
    # Advisories are other people's texts.
    pages = [page for page in listed.stdout.splitlines() if not page.startswith("scripts/advisory-db/")]
    for page in pages:
        text = open(os.path.join(root, page), encoding="utf-8").read()
        for found in re.finditer(r"^( *)```([^\n]*)\n(.*?)^ *```$", text, re.S | re.M):
            indent, head, body = found.groups()
            language, _, tag = head.partition(" ")
            body = re.sub("^" + indent, "", body, flags=re.M)
            yield Block(page, text[: found.start()].count("\n") + 1, language, tag, body)


def simple_commands(line):
    """The commands of a line of shell, without redirections, assignments and sudo."""
    lexer = shlex.shlex(line.replace("<(", " ; ").replace("$(", " ; "), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    command, skip = [], False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif word in ("<", ">", ">>"):
            skip = True
        elif word and not word.strip("();|&"):
            while command and (command[0] == "sudo" or re.match(r"\w+=", command[0])):
                command = command[1:]
            if command:
                yield command
            command = []
        else:
            command.append(word)


class Checker:
    def __init__(self, root, programs, module):
        self.root, self.programs, self.module = root, programs, module

    def output(self, *command, **options):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)
        return done.returncode, done.stdout + done.stderr

    def program(self, *command, **options):
        """Runs a command that must succeed."""
        code, output = self.output(*command, **options)
        return None if code == 0 else f"{shlex.join(command)}: exit status {code}: {output.strip()}"

    def command(self, words):
        name = os.path.basename(words[0])
        if name not in ROSTER_PROGRAMS:
            known = words[0] in OTHER_PROGRAMS or os.path.isfile(os.path.join(self.root, words[0]))
            return None if known else f"{words[0]}: unknown command"
        arguments = words[1:]
        end = arguments.index("--") if "--" in arguments else len(arguments)
        # roster-exec passes all arguments to the command.
        arguments = ["--help"] if name == "roster-exec" else arguments[:end] + ["--help"] + arguments[end:]
        with tempfile.TemporaryDirectory() as folder:
            for word in arguments:
                if re.fullmatch(r"@\w+", word):
                    open(os.path.join(folder, word[1:]), "w", encoding="utf-8").write("secret\n")
            return self.program(os.path.join(self.programs, name), *arguments, cwd=folder)

    def host_console(self, text):
        for line in text.splitlines():
            prompt, _, rest = line.partition(" ")
            if prompt not in ("$", "#"):
                yield f"{line}: no prompt"
                continue
            rest = rest.split("        # ")[0]
            for words in simple_commands(rest):
                yield self.command(words)

    def host_sh(self, text):
        # A here-document is configuration, which a test of its page reads.
        text = re.sub(r"<<'END'\n.*?^END$", "", text, flags=re.S | re.M)
        for line in text.splitlines():
            for words in simple_commands(line.split("   # ")[0]):
                yield self.command(words)

    def host_toml(self, text):
        with tempfile.TemporaryDirectory() as folder:
            for path in re.findall(r'"(/(?:etc|srv)/[^"]+)"', text):
                # Files of a real host: empty ones here.
                copy = os.path.join(folder, path.strip("/").replace("/", "-"))
                text = text.replace(f'"{path}"', f'"{copy}"')
                if path.endswith(".pem"):
                    text = text.replace(f'tls_ca = "{copy}"\n', "")
                with open(copy, "w", encoding="utf-8", opener=private) as file:
                    file.write("secret\n" if "password" in path else "")
            keytab = os.path.join(folder, "keytab")
            open(keytab, "wb", opener=private).write(b"\x05\x02")
            for line in ('auth = "krb5"\n', 'bind = "gssapi"\n'):
                text = text.replace(line, f'{line}krb5_keytab = "{keytab}"\n')
            pair = dict(re.findall(r'^(tls_cert|tls_key) = "([^"]+)"$', text, re.M))
            if pair:
                make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=host".split()
                yield self.program("openssl", *make, "-out", pair["tls_cert"], "-keyout", pair["tls_key"])
            file = os.path.join(folder, "roster.toml")
            open(file, "w", encoding="utf-8").write(text)
            if "[[rule]]" in text:
                yield self.program(os.path.join(self.programs, "roster-rootwrap"), "check-policy", file)
            else:
                yield self.program(os.path.join(self.programs, "roster"), "check-config", file, "--run-dir", folder)

    def host_sudoers(self, text):
        yield self.parsed_by(text, "visudo", "-cf")

    def parsed_by(self, text, *command):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            return self.program(*command, file.name)

    def host_python(self, text):
        try:
            compile(text, "block", "exec")
        except SyntaxError as error:
            yield str(error)
        imports = "\n".join(line for line in text.splitlines() if re.match(r"(from|import) roster_", line))
        environment = {**os.environ, "PYTHONPATH": os.path.join(self.root, "python/src"), "PYTHONDONTWRITEBYTECODE": "1"}
        # The tests of documents run without Locust.
        if "roster_locust" not in imports:
            code, output = self.output(sys.executable, "-c", imports, env=environment)
            yield None if code == 0 else f"{imports}: {output}"

    def host_ini(self, text):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text if text.startswith("[") else "[Filters]\n" + text)
        except configparser.Error as error:
            yield str(error)

    def host_yaml(self, text):
        try:
            yaml.safe_load(text)
        except yaml.YAMLError as error:
            yield str(error)

    def host_fstab(self, text):
        for line in text.splitlines():
            if len(line.split()) != 6:
                yield f"{line}: fstab(5) has six fields"

    def host_sshd_config(self, text):
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "key")
            yield self.program("ssh-keygen", "-q", "-N", "", "-f", key)
            os.makedirs("/run/sshd", exist_ok=True)
            config = os.path.join(folder, "sshd_config")
            open(config, "w", encoding="utf-8").write(f"HostKey {key}\n{text}")
            yield self.program("/usr/sbin/sshd", "-t", "-f", config)

    def host_fail2ban(self, text):
        page = open(os.path.join(self.root, "docs/how-to/logins.md"), encoding="utf-8").read()
        line = page.split("```text show: one line of the log\n")[1].split("\n")[0]
        if not re.search(text.strip().replace("<HOST>", r"\S+").replace("wrong password", ".*wrong password"), line):
            yield "does not match the line of the log"

    # Forms without a program that only parses them.
    FORMS = {"nsswitch.conf": r"(\w+:( +(\w+|\[\w+=\w+\]))+\n)+"}

    def run_console(self, text):
        steps = re.split(r"^\$ ", text, flags=re.M)
        environment = {
            "PATH": self.programs + ":" + os.environ["PATH"],
            "LD_LIBRARY_PATH": self.module,
            "LC_ALL": "C.UTF-8",
        }
        with tempfile.TemporaryDirectory() as folder:
            prefix = []
            if os.geteuid() == 0:
                # Programs of root ignore ROSTER_SNAPSHOT.
                os.chown(folder, 65534, 65534)
                prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
            for step in steps[1:]:
                line, _, expected = step.partition("\n")
                code, output = self.output(*prefix, "bash", "-c", line, cwd=folder, env=environment)
                if (code, output) != (0, expected):
                    yield f"{line}: exit status {code}, printed:\n{output}instead of:\n{expected}"

    def check(self, block):
        if block.tag == "run" and block.language == "console":
            return self.run_console(block.text)
        if (block.page, block.language) in OWN_TESTS:
            return []
        if block.tag != "host":
            return [f"the tag {block.tag!r} is neither run, host nor show: REASON"]
        if block.language in self.FORMS:
            whole = re.fullmatch(self.FORMS[block.language], block.text)
            return [] if whole else [f"not in the form of {block.language}"]
        method = getattr(self, "host_" + block.language.replace(".", "_"), None)
        return method(block.text) if method else [f"no check for the language {block.language!r}"]


def statements(block):
    """The commands of a block of a terminal, each with its here-document."""
    lines = iter(block.text.splitlines())
    for line in lines:
        line = line.split(" ", 1)[1].split("        # ")[0] if block.language == "console" else line.split("   # ")[0]
        if "<<'END'" in line:
            body = list(iter(lambda: next(lines), "END"))
            yield line, "\n".join([line, *body, "END"])
        elif line.strip():
            yield line, line


class HostRunner:
    """Runs the commands of terminal blocks on a booted host."""

    def __init__(self, enter):
        self.enter = enter
        self.ran, self.parsed = 0, 0

    def shell(self, text):
        """The exit status and output of a text of bash, in a directory with the files of the documents."""
        command = [*self.enter, "bash", "-o", "pipefail", "-c", f"cd /run/documents && {text}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"no end within {COMMAND_TIMEOUT_S} s"
        return done.returncode, done.stdout + done.stderr

    def run(self, block):
        found = list(statements(block))
        # A here-document has no commands.
        parts = [list(simple_commands(line.replace("<<'END'", ""))) for line, _ in found]
        runs = [not any(begins_with(words, NOT_RUN) for words in commands) for commands in parts]
        self.parsed += sum(len(commands) for commands, run in zip(parts, runs) if not run)
        if not any(runs):
            return
        code, output = self.shell(f"{RESTORE}; {PREPARATIONS.get(block.page, ':')}")
        if code:
            yield f"preparation: exit status {code}: {output}"
        for (line, text), commands, run in zip(found, parts, runs):
            if not run:
                continue
            self.ran += len(commands)
            code, output = self.shell(text)
            accepted = {0}.union(*(begins_with(words, STATUSES) or set() for words in commands))
            if code not in accepted:
                yield f"{line}: exit status {code}: {output.strip()}"


def run_on_host(root, enter):
    runner, mistakes = HostRunner(enter), 0
    for block in blocks(root):
        if block.tag != "host" or block.language not in ("console", "sh") or (block.page, block.language) in OWN_TESTS:
            continue
        for mistake in runner.run(block):
            mistakes += 1
            print(f"{block.page}:{block.line}: {mistake}")
    print(f"{runner.ran} commands ran, {runner.parsed} need more than the host has, {mistakes} mistakes")
    return mistakes


def main():
    if sys.argv[1] == "--on-host":
        sys.exit(run_on_host(os.path.abspath(sys.argv[2]), sys.argv[3:]) != 0)
    root, programs, module = map(os.path.abspath, sys.argv[1:])
    checker = Checker(root, programs, module)
    found, shown, mistakes = 0, 0, 0
    for block in blocks(root):
        found += 1
        if block.tag.startswith("show: "):
            shown += 1
            continue
        for mistake in filter(None, checker.check(block)):
            mistakes += 1
            print(f"{block.page}:{block.line}: {mistake}")
    if shown > found * SHOWN_MAX:
        mistakes += 1
        print(f"{shown} of {found} blocks are only shown: at most {SHOWN_MAX:.0%}")
    print(f"{found} blocks, {shown} only shown, {mistakes} mistakes")
    sys.exit(mistakes != 0)


main()
