# SPDX-License-Identifier: MIT OR Apache-2.0
"""The servers that the parts about rosterd share: loaded once for each directory and schema, and running only during a
measurement."""

import contextlib

from . import directory as d
from . import servers
from .directory import Directory, DirectoryShape


class Field:
    """The directories at the size of this run."""

    def __init__(self, bench):
        self.bench, self.quick = bench, bench.options.quick
        self.directories, self.servers = {}, {}
        if self.quick:
            self.large, self.small = DirectoryShape(2_000, 1_000, 100, 100), DirectoryShape(500, 200, 20, 50)
            self.huge = None
        else:
            # The corpus of the figures; the same with few users, and with many.
            self.large = DirectoryShape(10_201, 10_100, 500, 500)
            self.small = DirectoryShape(2_000, 1_000, 100, 100)
            self.huge = DirectoryShape(200_000, 10_100, 500, 500)

    def directory(self, shape):
        if shape not in self.directories:
            self.directories[shape] = Directory(shape, self.bench.seed)
        return self.directories[shape]

    @contextlib.contextmanager
    def serving(self, kind, schema, shape):
        """A running server that holds a directory. Changes in it stay."""
        server = self._loaded(kind, schema, shape)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def _loaded(self, kind, schema, shape):
        key = (kind, schema, shape)
        if key not in self.servers:
            self.bench.progress.begin(f"{kind.name}, {schema}: loading {shape}")
            folder = self.bench.folder(f"{kind.name}-{schema}-{shape.key}")
            folder.mkdir(parents=True)
            ldif = folder / "load"
            self.directory(shape).write_ldif(ldif, schema)
            server = kind(folder, schema)
            server.load(ldif)
            ldif.unlink()
            self.servers[key] = server
        return self.servers[key]


# Server, schema: the mirrored directories. The first one serves all other measurements.
SLAPD = (servers.Slapd, d.RFC2307)
SLAPD_BIS = (servers.Slapd, d.RFC2307BIS)
DS389 = (servers.Ds389, d.RFC2307BIS)


def label(kind, schema):
    return f"{kind.name}, {schema}"
