# SPDX-License-Identifier: MIT OR Apache-2.0
"""Logging in through pam_roster: against the directory, the decision about the account, and without the directory."""

from contextlib import ExitStack

from ...parts import login
from ..blocks import ROUNDS_OF_CALLS
from .directory import SHAPE, loaded_server

USERS = 8


class LogIn:
    name = "login"
    programs, modules = ("rosterd", "roster"), ("libnss_roster.so.2", "pam_roster.so")
    helpers = ("spawn", "lookup_latency", "login")
    load = {
        "corpora": str(SHAPE), "clients": f"1 daemon a side, 1 login at a time, {USERS} users in turn",
        "rate": "closed loop",
    }  # fmt: skip

    def __init__(self, run):
        self.server = loaded_server(run)
        self.server.start()
        login.allow_logins(self.server, login.names(USERS))
        self.server.stop()

    def block(self, sides, series):
        faults = []
        with ExitStack() as stack:
            self.server.start()
            stack.callback(self.server.stop)
            hosts = {
                name: stack.enter_context(login.Host(side, login.OfRoster, self.server, faults, users=USERS))
                for name, side in sides.items()
            }
            for line, step in (("login, directory answers", "authenticate"), ("account decision", "account")):
                calls = {name: lambda host=host: host.timed(step, offline=False) for name, host in hosts.items()}
                series.take(line, calls, ROUNDS_OF_CALLS)
            # The server does not answer either of them from here on. The next block has fresh daemons, so none waits
            # for its return.
            self.server.stop()
            for host in hosts.values():
                host.wait_until(offline=True)
            calls = {name: lambda host=host: host.timed("authenticate", offline=True) for name, host in hosts.items()}
            series.take("login, directory away", calls)
        if faults:
            raise RuntimeError("; ".join(faults[:5]))
