# SPDX-License-Identifier: MIT OR Apache-2.0
"""Classes of users for Locust, with requests that roster-lab makes: LDAP, DNS, Kerberos, lookups, commands.

A locustfile names these users. Workers are `roster-lab worker --master HOST`. Locust's master, page, charts, CSV and
HTML are unchanged. A tab of its page has the percentiles, warnings about the figures, and the cost on the server:

    from roster_locust import LdapUser

    class Binds(LdapUser):
        uri = "ldap://ldap1"
        dn = "uid=u{0..999},ou=people,dc=example,dc=com"
        password = "@/etc/lab/password"

`roster-lab locust --file locustfile.py` starts a master with its page and workers beside it.
"""

from . import master as _master
from .users import CommandUser, DnsUser, KerberosUser, LdapUser, NssUser, PamUser

__all__ = ["CommandUser", "DnsUser", "KerberosUser", "LdapUser", "NssUser", "PamUser"]

_master.listen()
