# SPDX-License-Identifier: MIT OR Apache-2.0
"""The files of the package libnss-cache: /etc/{passwd,group}.cache and their indices.

The module trusts an index that is not older than its file. An index has lines of one width, sorted by key as bytes. A
line has the key, NUL, the decimal offset of the entry in the file, NULs, newline.
"""


def files(corpus, folder):
    """Paths by the name that each must have in /etc."""
    folder.mkdir(parents=True)
    written = {"passwd.cache": corpus.passwd, "group.cache": corpus.group}
    for file, name, key, field in (
        (corpus.passwd, "passwd.cache.ixname", "name", 0),
        (corpus.passwd, "passwd.cache.ixuid", "uid", 2),
        (corpus.group, "group.cache.ixname", "name", 0),
        (corpus.group, "group.cache.ixgid", "gid", 2),
    ):
        written[name] = folder / name
        written[name].write_bytes(index(file, field))
    return written


def index(file, field):
    offsets, offset = {}, 0
    with file.open("rb") as lines:
        for line in lines:
            offsets.setdefault(line.split(b":", field + 1)[field], b"%d" % offset)
            offset += len(line)
    width = max(map(len, offsets)) + max(map(len, offsets.values()))
    return b"".join(
        key + b"\0" + at + b"\0" + bytes(width - len(key) - len(at)) + b"\n" for key, at in sorted(offsets.items())
    )
