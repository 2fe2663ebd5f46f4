# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small LDAP client: binds, searches, changes, and follows changes.

The measured programs have their own clients. This one makes changes at known times and prepares the requests of bare
searches. As a witness beside rosterd it records the time at which a server reports a change.
"""

import socket
import threading
import time

ANSWER_WITHIN_S = 120
SYNC_REQUEST = "1.3.6.1.4.1.4203.1.9.1.1"

# Tags of RFC 4511.
BIND, BIND_RESPONSE = 0x60, 0x61
UNBIND = 0x42
SEARCH, ENTRY, DONE, REFERENCE = 0x63, 0x64, 0x65, 0x73
MODIFY, MODIFY_RESPONSE = 0x66, 0x67
ADD_ENTRY, DELETE_ENTRY = 0x68, 0x4A
INTERMEDIATE = 0x79
ADD, DELETE, REPLACE = range(3)
BASE, ONE, SUBTREE = range(3)


class LdapError(RuntimeError):
    pass


def tlv(tag, *parts):
    body = b"".join(parts)
    length = len(body)
    if length < 0x80:
        return bytes((tag, length)) + body
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + body


def integer(value, tag=0x02):
    return tlv(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(text, tag=0x04):
    return tlv(tag, text if isinstance(text, bytes) else text.encode())


def equals(attribute, value):
    return tlv(0xA3, octets(attribute), octets(value))


def present(attribute):
    return octets(attribute, 0x87)


def every(*filters):
    return tlv(0xA0, *filters)


def either(*filters):
    return tlv(0xA1, *filters)


def search_request(base, filter, attributes, scope=SUBTREE):
    return tlv(
        SEARCH, octets(base), integer(scope, 0x0A), integer(0, 0x0A), integer(0), integer(0), tlv(0x01, b"\0"),
        filter, tlv(0x30, *map(octets, attributes)),
    )  # fmt: skip


def message(number, operation, controls=b""):
    return tlv(0x30, integer(number), operation, tlv(0xA0, controls) if controls else b"")


def parsed(data, at=0):
    """Tag, first and last offset of the contents of the element at `at`; None if it is not whole."""
    if len(data) < at + 2:
        return None
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        if len(data) < start:
            return None
        length = int.from_bytes(data[at + 2 : start], "big")
    return (tag, start, start + length) if len(data) >= start + length else None


class Connection:
    """One connection, one thread."""

    def __init__(self, host, port, dn="", password=""):
        self.socket = socket.create_connection((host, port), timeout=ANSWER_WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.number = 0
        self.ask(bind_request(dn, password))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, *operations, controls=b""):
        first = self.number + 1
        self.number += len(operations)
        numbered = (message(first + i, operation, controls) for i, operation in enumerate(operations))
        self.socket.sendall(b"".join(numbered))

    def receive(self):
        """Tag and bytes of the next operation that the server sends."""
        while True:
            whole = parsed(self.buffer)
            if whole:
                _, start, end = whole
                _, _, after_number = parsed(self.buffer, start)
                tag, first, last = parsed(self.buffer, after_number)
                operation = bytes(self.buffer[first:last])
                del self.buffer[:end]
                return tag, operation
            more = self.socket.recv(1 << 16)
            if not more:
                raise LdapError("the server closed the connection")
            self.buffer += more

    def result(self):
        """Awaits the end of an operation; entries on the way to it are given back."""
        entries = []
        while True:
            tag, operation = self.receive()
            if tag in (ENTRY, REFERENCE):
                entries.append(operation)
                continue
            if tag == INTERMEDIATE:
                continue
            _, first, last = parsed(operation)
            code = int.from_bytes(operation[first:last], "big")
            if code != 0:
                _, _, matched = parsed(operation, last)
                _, first, last = parsed(operation, matched)
                raise LdapError(f"result {code}: {operation[first:last].decode(errors='replace')}")
            return entries

    def ask(self, operation):
        self.send(operation)
        return self.result()

    def modify(self, dn, how, attribute, *values):
        return self.ask(modify_request(dn, how, attribute, *values))


def bind_request(dn="", password=""):
    return tlv(BIND, integer(3), octets(dn), octets(password, 0x80))


def modify_request(dn, how, attribute, *values):
    change = tlv(0x30, octets(attribute), tlv(0x31, *map(octets, values)))
    return tlv(MODIFY, octets(dn), tlv(0x30, tlv(0x30, integer(how, 0x0A), change)))


def add_request(dn, attributes):
    """Adds an entry; an attribute has one value or a list of them."""
    lists = ((name, values if isinstance(values, list) else [values]) for name, values in attributes.items())
    return tlv(
        ADD_ENTRY,
        octets(dn),
        tlv(0x30, *(tlv(0x30, octets(name), tlv(0x31, *map(octets, values))) for name, values in lists)),
    )


def delete_request(dn):
    return octets(dn, DELETE_ENTRY)


def text_of(entry, attribute):
    """The first value of an attribute of an entry."""
    _, _, at = parsed(entry)
    _, at, end = parsed(entry, at)
    while at < end:
        _, first, last = parsed(entry, at)
        _, name_first, name_last = parsed(entry, first)
        if entry[name_first:name_last].decode().lower() == attribute.lower():
            _, values, _ = parsed(entry, name_last)
            _, value, value_end = parsed(entry, values)
            return entry[value:value_end].decode()
        at = last
    raise LdapError(f"there is no {attribute} in the entry")


class Witness:
    """Follows the changes of a few entries (RFC 4533) and records the time of each report."""

    def __init__(self, host, port, dn, password, base, filter):
        self.connection = Connection(host, port, dn, password)
        self.times = []
        self.lock = threading.Lock()
        request = search_request(base, filter, ["1.1"])
        refresh_and_persist = octets(tlv(0x30, integer(3, 0x0A)))
        self.connection.send(
            request, controls=tlv(0x30, octets(SYNC_REQUEST), tlv(0x01, b"\xff"), refresh_and_persist)
        )
        self._refreshed()
        self.connection.socket.settimeout(None)
        threading.Thread(target=self._listen, daemon=True).start()

    def _refreshed(self):
        """Until the end of the first phase: an intermediate response with refreshDelete or refreshPresent."""
        while True:
            tag, operation = self.connection.receive()
            if tag == DONE:
                raise LdapError("the server does not let changes be followed")
            if tag != INTERMEDIATE:
                continue
            at = 0
            while at < len(operation):
                part, first, last = parsed(operation, at)
                if part == 0x81 and operation[first] in (0xA1, 0xA2):
                    return
                at = last

    def _listen(self):
        try:
            while True:
                tag, _ = self.connection.receive()
                if tag == ENTRY:
                    with self.lock:
                        self.times.append(time.monotonic_ns())
        except (OSError, LdapError):
            pass

    def first_since(self, begin_ns):
        with self.lock:
            return next((each for each in self.times if each >= begin_ns), None)

    def close(self):
        self.connection.close()
