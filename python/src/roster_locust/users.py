# SPDX-License-Identifier: MIT OR Apache-2.0
"""The classes that a locustfile derives its users from. They make no requests: they describe the behaviour of users.

Their attributes are the options of roster-lab's command of the same name, with _ for -, as typed on a command line. The
worker reports an attribute that is not an option. Locust's own attributes (weight, fixed_count) have Locust's
meaning.
"""

from typing import Any, ClassVar, Dict, Optional, Tuple

from locust import User, task


class NativeUser(User):
    """A user with requests that roster-lab makes."""

    abstract = True

    #: The command of roster-lab.
    load: ClassVar[str] = ""
    #: The option that the host of Locust's page replaces.
    target: ClassVar[Optional[str]] = None
    #: Prefixes of hosts for this class. A host with another prefix does not replace its target.
    schemes: ClassVar[Tuple[str, ...]] = ()

    @classmethod
    def options(cls) -> Dict[str, Any]:
        """The options of this class and of its base classes."""
        options: Dict[str, Any] = {}
        for above in reversed(cls.__mro__):
            if not issubclass(above, NativeUser) or above is NativeUser:
                continue
            for name, value in vars(above).items():
                if not name.startswith("_") and name not in _NOT_OPTIONS and value is not None:
                    options[name.replace("_", "-")] = value
        host = getattr(cls, "host", None)
        if cls.target and host and (cls._is_for(host) or cls.target not in options):
            options[cls.target] = host
        return options

    @classmethod
    def _is_for(cls, host: str) -> bool:
        return host.startswith(cls.schemes) if cls.schemes else "://" not in host

    @task
    def made_by_a_worker(self) -> None:
        raise RuntimeError(
            "%s: only workers of roster-lab make its requests. Start Locust with --master, and "
            "roster-lab worker --master HOST. [RST-8195]" % type(self).__name__
        )


_NOT_OPTIONS = frozenset(dir(NativeUser)) | {"load", "target", "schemes"}


class LdapUser(NativeUser):
    """Binds, searches, compares or modifies: see roster-lab-ldap(1)."""

    abstract = True
    load = "ldap"
    target = "uri"
    schemes = ("ldap://", "ldaps://")


class DnsUser(NativeUser):
    """Sends queries to a DNS server: see roster-lab-dns(1)."""

    abstract = True
    load = "dns"
    target = "server"


class KerberosUser(NativeUser):
    """Logs in at a KDC, or requests tickets: see roster-lab-krb5(1)."""

    abstract = True
    load = "krb5"
    target = "kdc"


class NssUser(NativeUser):
    """Looks users and groups up on the worker's host: see roster-lab-nss(1)."""

    abstract = True
    load = "nss"


class PamUser(NativeUser):
    """Logs in through PAM on the worker's host: see roster-lab-pam(1)."""

    abstract = True
    load = "pam"


class CommandUser(NativeUser):
    """Runs `command`, a list of arguments, on the worker's host: see roster-lab-command(1).

    Only workers with --allow-commands, or of roster-lab locust, run it.
    """

    abstract = True
    load = "command"
