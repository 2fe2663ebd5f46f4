# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables about roster-lab and other generators."""

from .table import Table

WAYS = {"reuse": "connections reused", "new": "a connection each"}


def tables(results):
    part = results.get("lab")
    if part is None:
        return []
    binds = [[WAYS[way], *row] for way, each in part["binds"].items() for row in _rows(each)]
    others = [[name, *row] for name, each in (("DNS", part["dns"]), ("Kerberos AS", part["krb5"])) for row in _rows(each)]
    columns = ["", "by", "a second", "for a second of the client's processor", "client, µs each"]
    commands = [[name, f"{each['rate']['median']:,.0f}"] for name, each in part["commands"].items()]
    delays = [
        [name, share, f"{each['known_ms']:.2f}", f"{each['told_ms']:.2f}", f"{each['off'] * 100:.2f} %"]
        for name, shares in part["delays"].items()
        for share, each in shares.items()
    ]
    return [
        Table("LDAP binds at slapd, medians", columns, binds, []),
        Table("DNS queries at dnsmasq, logins at krb5kdc, medians", columns, others, []),
        Table("`true` on all processors, a second", ["by", "a second"], commands, ["hyperfine runs one at a time."]),
        Table("Delays that are known, open loop, ms", ["server", "", "known", "told", "off"], delays, []),
    ]


def _rows(part):
    return [
        [
            name,
            f"{each['rate']['median']:,.0f}",
            f"{each['per_client_core']['median']:,.0f}",
            f"{each['client_cpu_us']['median']:.1f}",
        ]
        for name, each in part.items()
    ]
