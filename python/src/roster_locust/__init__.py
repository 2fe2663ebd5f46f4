"""Classes of users for Locust whose requests roster-lab makes: LDAP, DNS, Kerberos, look-ups, commands.

A locustfile names who they are; workers are `roster-lab worker --master HOST`, and Locust's master, page,
charts, CSV and HTML are as ever. A tab of its page has the percentiles, what to know before the figures
are believed, and what the server costs:

    from roster_locust import LdapUser

    class Binds(LdapUser):
        uri = "ldap://ldap1"
        dn = "uid=u{0..999},ou=people,dc=example,dc=com"
        password = "@/etc/lab/password"

`roster-lab up --file locustfile.py` starts a master with its page and workers beside it.
"""

from . import master as _master
from .users import CommandUser, DnsUser, KerberosUser, LdapUser, NssUser, PamUser

__all__ = ["CommandUser", "DnsUser", "KerberosUser", "LdapUser", "NssUser", "PamUser"]

_master.listen()
