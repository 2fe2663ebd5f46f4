#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lists the crates that packages consist of, from Cargo.lock and the sources of the crates. All output follows from
Cargo.lock and SOURCE_DATE_EPOCH, so equal trees give equal files.
"""

import datetime
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import uuid
import zlib

USAGE = """usage: packaging/crates.py ACTION, one of:
  copyright PACKAGE  print a machine-readable debian/copyright
  sbom PACKAGE       print a bill of materials, CycloneDX 1.5 in JSON
  audit DESTDIR      add the section of cargo-auditable to the programs below DESTDIR"""
TREE = pathlib.Path(__file__).resolve().parent.parent
# The crates of each Debian package, with the files that are built of them.
PACKAGES = {
    "libnss-roster": {"roster-nss": ["libnss_roster.so.2"]},
    "libpam-roster": {"roster-pam": ["pam_roster.so"]},
    "roster": {"roster": ["roster"]},
    "rosterd": {"rosterd": ["rosterd"], "roster-krb5-helper": ["roster-krb5"]},
    "roster-rootwrap": {
        "roster-rootwrap": ["roster-rootwrap", "roster-rootwrap-daemon"],
        "roster-exec": ["roster-exec"],
    },
    "roster-lab": {"roster-lab": ["roster-lab"]},
    "roster-openstack": {},
}
HOMEPAGE = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
# Names of files with the text of a licence. A crate with this licence alone may call the file LICENSE.
TEXTS = {
    "BSD-3-Clause": "LICENSE-BSD",
    "ISC": "LICENSE-ISC",
    "Unicode-3.0": "LICENSE-UNICODE",
    "Zlib": "LICENSE-ZLIB",
}
COPYRIGHT_LINES_MAX = 40


@functools.cache
def cargo(*arguments):
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=TREE, check=True, stdout=subprocess.PIPE, text=True).stdout


@functools.cache
def metadata():
    host = re.search(r"^host: (.*)", subprocess.check_output(["rustc", "-vV"], text=True), re.M).group(1)
    return json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", host))


def linked(crate):
    """Ids of the crates that the linker reads for the programs of this crate. Crates of build scripts and of macros run
    during the build only."""
    tree = cargo("tree", "--package", crate, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    return {item["id"] for item in metadata()["packages"] if (item["name"], "v" + item["version"]) in names}


def of_package(package):
    """The crates of a package, by name and version."""
    ids = set().union(*(linked(crate) for crate in PACKAGES[package]))
    return sorted((item for item in metadata()["packages"] if item["id"] in ids), key=name_and_version)


def name_and_version(item):
    return item["name"], item["version"]


def is_own(item):
    return item["source"] is None


def expression(item):
    """The licence in SPDX, without the old form with a slash."""
    if not item["license"]:
        sys.exit(f"crates.py: {item['name']} {item['version']}: Cargo.toml has no licence. Name it here.")
    return item["license"].replace("/", " OR ")


def licence_files(item):
    folder = pathlib.Path(item["manifest_path"]).parent
    named = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.I)
    return sorted(path for path in folder.iterdir() if named.match(path.name) and path.is_file())


def holders(item):
    """The lines about copyright in the licence files, otherwise the authors of the manifest."""
    found = []
    for path in licence_files(item):
        for line in path.read_text(errors="replace").splitlines():
            match = re.match(r"\W*copyright\s+(?:\(c\)|©|&copy;)?\s*((?:[0-9]{4}[-–0-9, ]*|the )[^-–0-9, ].{3,120})", line, re.I)
            if match and "[" not in match.group(1) and "{" not in match.group(1):
                found.append(re.sub(r"\s+", " ", match.group(1)).strip(" ./*"))
    found = list(dict.fromkeys(found))[:COPYRIGHT_LINES_MAX]
    return found or item["authors"] or [f"the developers of {item['name']}"]


def chosen(item):
    """The licences under which the packages distribute the crate: MIT and Apache-2.0 of several to choose from."""
    parts = []
    for part in re.sub(r"[()]", "", expression(item)).split(" AND "):
        offered = part.split(" OR ")
        parts.append([name for name in offered if name in ("MIT", "Apache-2.0")] or offered[:1])
    return parts


def dep5_expression(item):
    """The chosen licences in the form of Debian, in which a comma stands for parentheses."""
    return ", and ".join(dict.fromkeys(" or ".join(sorted(part, reverse=True)) for part in chosen(item)))


def licence_names(items):
    return sorted({name for item in items for part in chosen(item) for name in part} | {"MIT", "Apache-2.0"})


def as_paragraph(text):
    """Lines of a field: indented, an empty one as a dot. A tab or space at the end has no meaning."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(f" {line}" if line else " ." for line in lines)


def licence_text(name, items):
    if name == "Apache-2.0":
        return as_paragraph("On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of the licence.")
    if name == "MIT":
        text = (TREE / "LICENSES/MIT.txt").read_text()
        return as_paragraph(text.split("\n\n", 2)[2])
    if name == "CC0-1.0":
        return as_paragraph("On Debian systems, /usr/share/common-licenses/CC0-1.0 has the text of the licence.")
    having = [item for item in items if name in re.split(r"[ ()]+", expression(item))]
    for wanted, crates in (
        (TEXTS.get(name, f"LICENSE-{name}"), having),
        ("LICENSE", [item for item in having if expression(item) == name]),
        ("COPYING", [item for item in having if expression(item) == name]),
    ):
        for path in (path for item in crates for path in licence_files(item)):
            if path.name.upper().removesuffix(".MD").removesuffix(".TXT") == wanted.upper():
                return as_paragraph(path.read_text(errors="replace"))
    sys.exit(f"crates.py: no crate has a text of the licence {name}. Name its file in TEXTS.")


def print_copyright(package):
    print(f"Format: {HOMEPAGE}\nUpstream-Name: Roster")
    print("Comment: The paragraphs after the first one are about crates that are linked into the programs.")
    print(" Of several licences to choose from, those of Roster are taken where a crate offers them.")
    print("\nFiles: *\nCopyright: 2026 The Roster developers\nLicense: MIT or Apache-2.0")
    crates = [item for item in of_package(package) if not is_own(item)]
    groups = {}
    for item in crates:
        groups.setdefault((dep5_expression(item), tuple(holders(item))), []).append(item)
    for (licence, owners), items in sorted(groups.items(), key=lambda group: name_and_version(group[1][0])):
        files = "\n ".join(f"vendor/{item['name']}-{item['version']}/*" for item in items)
        print(f"\nFiles: {files}\nCopyright: " + "\n ".join(owners) + f"\nLicense: {licence}")
    if crates:
        print("\nFiles: vendor/rust-std/*\nCopyright: The Rust Project Developers\nLicense: MIT or Apache-2.0")
    for name in licence_names(crates):
        print(f"\nLicense: {name}\n{licence_text(name, crates)}")


def reference(item):
    return f"pkg:cargo/{item['name']}@{item['version']}"


def component(item, kind="library"):
    found = {"type": kind, "bom-ref": reference(item), "name": item["name"], "version": item["version"]}
    if item["description"]:
        found["description"] = item["description"].strip()
    found["licenses"] = [{"expression": expression(item)}]
    if not is_own(item):
        found["hashes"] = [{"alg": "SHA-256", "content": checksums()[name_and_version(item)]}]
        found["purl"] = reference(item)
    return found


@functools.cache
def checksums():
    text = (TREE / "Cargo.lock").read_text()
    pattern = r'^name = "(.*)"\nversion = "(.*)"\n(?:source = .*\n)?checksum = "(.*)"'
    return {(name, version): sum for name, version, sum in re.findall(pattern, text, re.M)}


def edges(ids):
    """The dependencies between these crates, by id."""
    nodes = {node["id"]: node["deps"] for node in metadata()["resolve"]["nodes"]}
    return {id: sorted(dep["pkg"] for dep in nodes[id] if dep["pkg"] in ids and is_normal(dep)) for id in ids}


def is_normal(dependency):
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def print_sbom(package):
    items = of_package(package)
    by_id = {item["id"]: item for item in items}
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    version = os.environ["ROSTER_PACKAGE_VERSION"]
    graph = [
        {"ref": reference(by_id[id]), "dependsOn": sorted(reference(by_id[dep]) for dep in deps)}
        for id, deps in edges(set(by_id)).items()
    ]
    roots = sorted(f"pkg:cargo/{crate}@" for crate in PACKAGES[package])
    graph.append({
        "ref": f"pkg:deb/{package}@{version}",
        "dependsOn": sorted(reference(item) for item in items if reference(item).startswith(tuple(roots))),
    })
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{package}@{version}@{when}')}",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": f"pkg:deb/{package}@{version}",
                "name": package,
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": [component(item) for item in items],
        "dependencies": sorted(graph, key=lambda node: node["ref"]),
    }
    json.dump(bom, sys.stdout, indent=1, ensure_ascii=False)
    print()


def audit_data(crate):
    """The list that cargo-auditable puts into a program: JSON of the linked crates, compressed by zlib."""
    ids = linked(crate)
    items = sorted((item for item in metadata()["packages"] if item["id"] in ids), key=name_and_version)
    index = {item["id"]: at for at, item in enumerate(items)}
    graph = edges(ids)
    packages = []
    for item in items:
        entry = {"name": item["name"], "version": item["version"], "source": "local" if is_own(item) else "crates.io"}
        if graph[item["id"]]:
            entry["dependencies"] = sorted(index[dep] for dep in graph[item["id"]])
        if item["name"] == crate:
            entry["root"] = True
        packages.append(entry)
    return zlib.compress(json.dumps({"packages": packages}, separators=(",", ":")).encode(), 9)


def audit(destdir):
    crates = {file: crate for built in PACKAGES.values() for crate, files in built.items() for file in files}
    done = set()
    for path in sorted(pathlib.Path(destdir).rglob("*")):
        # Completions have the names of programs, too.
        if path.name in crates and path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            with tempfile.NamedTemporaryFile() as data:
                data.write(audit_data(crates[path.name]))
                data.flush()
                subprocess.run(["objcopy", "--add-section", f".dep-v0={data.name}", str(path)], check=True)
            done.add(path.name)
    if done != set(crates):
        sys.exit(f"crates.py: not found below {destdir}: {', '.join(sorted(set(crates) - done))}.")


def main():
    actions = {"copyright": print_copyright, "sbom": print_sbom, "audit": audit}
    if len(sys.argv) != 3 or sys.argv[1] not in actions:
        sys.exit(USAGE)
    if sys.argv[1] != "audit" and sys.argv[2] not in PACKAGES:
        sys.exit(f"crates.py: no such package: {sys.argv[2]}.")
    actions[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
