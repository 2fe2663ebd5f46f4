# SPDX-License-Identifier: MIT OR Apache-2.0
"""Typical Locust users that load an LDAP server: users of ldap3, and of a socket and bytes made once.

LAB_USERS (ldap3, raw), LAB_URI, LAB_CONNECTIONS (reuse, new)
"""

import itertools
import os
import socket
import struct
import time

import ldap3
from locust import User, task

HOST, PORT = os.environ["LAB_URI"].removeprefix("ldap://").split(":")
EACH_ITS_OWN = os.environ["LAB_CONNECTIONS"] == "new"
NUMBERS = itertools.count()


def dn():
    return f"uid=u{next(NUMBERS) % 1000:03},ou=people,dc=example,dc=com"


class Binds(User):
    abstract = True
    connection = None

    @task
    def bind(self):
        began = time.perf_counter()
        error = None
        try:
            if EACH_ITS_OWN or self.connection is None:
                self.connection = self.connect()
            self.bind_as(dn())
            if EACH_ITS_OWN:
                self.disconnect()
        except Exception as raised:  # Locust counts it
            error, self.connection = raised, None
        took = (time.perf_counter() - began) * 1e3
        self.environment.events.request.fire(
            request_type="LDAP", name="bind", response_time=took, response_length=0, exception=error
        )


if os.environ["LAB_USERS"] == "ldap3":

    class WithLdap3(Binds):
        def connect(self):
            # A private server object: after one failed connection, for want of a port, it is invalid for good.
            return ldap3.Connection(ldap3.Server(HOST, int(PORT), get_info=ldap3.NONE))

        def bind_as(self, name):
            if not self.connection.rebind(name, "secret"):
                raise RuntimeError(self.connection.result["description"])

        def disconnect(self):
            self.connection.unbind()

else:

    class Raw(Binds):
        def connect(self):
            made = socket.create_connection((HOST, int(PORT)))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made

        def bind_as(self, name):
            name = name.encode()
            body = b"\x02\x01\x03\x04" + bytes([len(name)]) + name + b"\x80\x06secret"
            message = b"\x02\x04" + struct.pack(">I", next(NUMBERS) % 2**31) + b"\x60" + bytes([len(body)]) + body
            self.connection.sendall(b"\x30" + bytes([len(message)]) + message)
            answer = self.connection.recv(4096)
            if b"\x0a\x01\x00" not in answer:
                raise RuntimeError("refused")

        def disconnect(self):
            self.connection.close()
