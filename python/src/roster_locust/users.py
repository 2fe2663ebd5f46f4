"""The classes that a locustfile derives its users from. They make no requests: they say what users do.

Their attributes are the options of roster-lab's command of the same name, with _ for -, as they would be
typed; what is not an option the worker names. Locust's own attributes (weight, fixed_count) mean what they
mean there.
"""

from typing import Any, ClassVar, Dict, Optional, Tuple

from locust import User, task


class NativeUser(User):
    """A user whose requests roster-lab makes."""

    abstract = True

    #: The command of roster-lab.
    load: ClassVar[str] = ""
    #: The option that the host of Locust's page takes the place of.
    target: ClassVar[Optional[str]] = None
    #: How hosts begin that are for it; those of others do not stand in the place of its own.
    schemes: ClassVar[Tuple[str, ...]] = ()

    @classmethod
    def options(cls) -> Dict[str, Any]:
        """What was said of this class and of those that it is derived from."""
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
            "the requests of %s are made by roster-lab: start Locust with --master, and "
            "roster-lab worker --master HOST" % type(self).__name__
        )


_NOT_OPTIONS = frozenset(dir(NativeUser)) | {"load", "target", "schemes"}


class LdapUser(NativeUser):
    """Binds, searches, compares or modifies: see roster-lab-ldap(1)."""

    abstract = True
    load = "ldap"
    target = "uri"
    schemes = ("ldap://", "ldaps://")


class DnsUser(NativeUser):
    """Asks a DNS server: see roster-lab-dns(1)."""

    abstract = True
    load = "dns"
    target = "server"


class KerberosUser(NativeUser):
    """Logs in at a KDC, or asks it for tickets: see roster-lab-krb5(1)."""

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
    """Runs `command`, a list of words, on the worker's host: see roster-lab-command(1).

    Workers do so with --allow-commands only, and those of roster-lab up.
    """

    abstract = True
    load = "command"
