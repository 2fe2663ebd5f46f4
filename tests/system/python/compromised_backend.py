#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A compromised backend: a client of the private bus, under a backend's user. It tries forbidden calls and hands over
entries that must not be served. It implements D-Bus without a library, which would refuse to send malformed messages.

usage: compromised_backend.py SOCKET try DOMAIN       tries, and prints the result of each try.
       compromised_backend.py SOCKET serve DOMAIN     takes the domain's name, hands over hostile entries, and
                                           goes on until its standard input ends.
       compromised_backend.py SOCKET exceed DOMAIN    the same with an entry that exceeds all bounds.
       compromised_backend.py SOCKET silent DOMAIN    the same, and never signals that there is something.
"""

import array
import fcntl
import os
import select
import socket
import struct
import sys

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
F_ADD_SEALS, ALL_SEALS = 1033, 15
BUS = "org.freedesktop.DBus"
ANSWER_WITHIN_SECONDS = 60

# Flags of an image: nothing is missing, and it is as the directory is now.
COMPLETE, CURRENT, REMOVALS_JUDGED = 1, 2, 4


def padded(data, to):
    return data + b"\0" * (-len(data) % to)


def text(value):
    value = value.encode()
    return struct.pack("<I", len(value)) + value + b"\0"


def body_of(signature, values):
    """Encodes the few types that are needed here."""
    body = b""
    for kind, value in zip(signature, values):
        if kind in "so":
            body = padded(body, 4) + text(value)
        elif kind in "uh":
            body = padded(body, 4) + struct.pack("<I", value)
        elif kind == "t":
            body = padded(body, 8) + struct.pack("<Q", value)
        elif kind == "y":
            body = padded(body, 4) + struct.pack("<I", len(value)) + value  # "ay", written "y" here
        elif kind == "b":
            body = padded(body, 4) + struct.pack("<I", value)
    return body


class Bus:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.serial, self.rest = 0, b""
        uid = str(os.getuid()).encode().hex()
        self.socket.sendall(b"\0AUTH EXTERNAL " + uid.encode() + b"\r\n")
        if not self.socket.recv(1000).startswith(b"OK"):
            sys.exit("not let in")
        self.socket.sendall(b"NEGOTIATE_UNIX_FD\r\nBEGIN\r\n")
        self.socket.recv(1000)
        self.call(BUS, "/org/freedesktop/DBus", BUS, "Hello")

    def send(self, kind, signature="", values=(), fd=None, **fields):
        self.serial += 1
        codes = {"path": (1, "o"), "interface": (2, "s"), "member": (3, "s"), "reply": (5, "u"),
                 "destination": (6, "s")}
        parts = b""
        for name, value in fields.items():
            code, form = codes[name]
            parts = padded(parts, 8) + bytes([code, 1]) + form.encode() + b"\0" \
                + body_of(form, [value])
        if signature:
            shown = signature.replace("y", "ay").encode()
            parts = padded(parts, 8) + bytes([8, 1]) + b"g\0" + bytes([len(shown)]) + shown + b"\0"
        if fd is not None:
            parts = padded(parts, 8) + bytes([9, 1]) + b"u\0" + struct.pack("<I", 1)
        body = body_of(signature, values)
        head = struct.pack("<cBBBII", b"l", kind, 0, 1, len(body), self.serial)
        message = padded(head + struct.pack("<I", len(parts)) + parts, 8) + body
        extra = []
        if fd is not None:
            extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self.socket.sendmsg([message], extra)
        return self.serial

    def receive(self, deadline):
        """(kind, serial, {field code: value}, body), or None."""
        while True:
            if len(self.rest) >= 16:
                kind, _, _, length, serial, fields = struct.unpack_from("<xBBBIII", self.rest)
                start = 16 + fields + -fields % 8
                if len(self.rest) >= start + length:
                    message, self.rest = self.rest[:start + length], self.rest[start + length:]
                    return kind, serial, self.fields(message, 16 + fields), message[start:]
            if not select.select([self.socket], [], [], deadline)[0]:
                return None
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_LEN(64))
            for _, _, fds in ancillary:
                for fd in array.array("i", fds[:len(fds) // 4 * 4]):
                    os.close(fd)
            if not data:
                sys.exit("thrown out")
            self.rest += data

    @staticmethod
    def fields(message, end):
        found, at = {}, 16
        while at < end:
            at += -at % 8
            code, form = message[at], chr(message[at + 2])
            at += 4
            if form in "so":
                length = struct.unpack_from("<I", message, at)[0]
                found[code] = message[at + 4:at + 4 + length].decode()
                at += 5 + length
            elif form == "g":
                at += 2 + message[at]
            else:
                found[code] = struct.unpack_from("<I", message, at)[0]
                at += 4
        return found

    def call(self, destination, path, interface, member, signature="", *values):
        """Makes a call. Returns its body, or the name of the error."""
        serial = self.send(CALL, signature, values, destination=destination, path=path,
                           interface=interface, member=member)
        while True:
            message = self.receive(ANSWER_WITHIN_SECONDS)
            if message is None:
                return "no answer"
            kind, _, fields, body = message
            if kind in (RETURN, ERROR) and fields.get(5) == serial:
                return body if kind == RETURN else fields[4]


def elements(domain):
    return "".join(c if c.isalpha() or c.isdigit() and i else f"_{ord(c):02x}"
                   for i, c in enumerate(domain))


def attempt(bus, domain):
    """Everything that only others may."""
    mine = f"org.roster.Backend.{elements(domain)}"
    for name in ("org.roster.Monitor", "org.roster.Publisher", "org.roster.Backend.lab",
                 "org.roster.Backend.other", "org.roster.Responder.Nss", "org.roster",
                 "org.example.Anything", f"{mine}.more"):
        answer = bus.call(BUS, "/org/freedesktop/DBus", BUS, "RequestName", "su", name, 4)
        print("own", name, answer if isinstance(answer, str) else struct.unpack("<I", answer)[0])
    calls = [
        ("org.roster.Monitor", "org.roster.Monitor1", "Reload", "", ()),
        ("org.roster.Monitor", "org.roster.Monitor1", "Status", "", ()),
        ("org.roster.Monitor", "org.roster.Role1", "Stop", "", ()),
        ("org.roster.Publisher", "org.roster.Role1", "Stop", "", ()),
        ("org.roster.Publisher", "org.roster.Role1", "SetLogLevel", "s", ("trace",)),
        ("org.roster.Publisher", "org.roster.Publisher1", "Publish", "", ()),
        ("org.roster.Publisher", "org.roster.Publisher1", "LookUp", "tuyu", (0, 0, b"alice", 0)),
        ("org.roster.Backend.lab", "org.roster.Role1", "Stop", "", ()),
        ("org.roster.Backend.lab", "org.roster.Backend1", "Confirm", "", ()),
        ("org.roster.Backend.lab", "org.roster.Backend1", "Refresh", "", ()),
        ("org.roster.Backend.lab", "org.roster.Backend1", "Fetch", "tt", (0, 0)),
        ("org.roster.Backend.lab", "org.roster.Backend1", "LookUp", "tuyu", (0, 0, b"carla", 0)),
        (BUS, BUS, "UpdateActivationEnvironment", "", ()),
        (BUS, "org.freedesktop.DBus.Monitoring", "BecomeMonitor", "", ()),
    ]
    for destination, interface, member, signature, values in calls:
        path = "/" + destination.replace(".", "/")
        answer = bus.call(destination, path, interface, member, signature, *values)
        print("call", destination, member, answer if isinstance(answer, str) else "done")
    # A signal has no answer. The test checks that no receiver trusts it.
    bus.send(SIGNAL, "t", (1 << 40,), path="/org/roster/Publisher",
             interface="org.roster.Publisher1", member="SnapshotPublished")
    bus.send(SIGNAL, "tt", (1, 1 << 40), path="/org/roster/Backend/lab",
             interface="org.roster.Backend1", member="Changed")
    bus.send(SIGNAL, "", (), path="/org/roster/Monitor", interface="org.roster.Monitor1",
             member="ConfigReloaded")


def record(op, number, body, flags=0):
    body = struct.pack("<BBHI", op, flags, 0, number) + body
    return struct.pack("<I", len(body) + 4) + body


def user(number, name, uid, gid, gecos=b"", home=b"/home/x", shell=b"/bin/sh"):
    texts = (name, gecos, home, shell)
    by_name = number | 1 << 20
    return record(1, number, struct.pack("<IIII4H", number, by_name, uid, gid, *map(len, texts))
                  + b"".join(texts))


def group(number, name, gid, members=()):
    return record(2, number, struct.pack(f"<IIII{len(members)}I", number, gid, len(members), len(name),
                                         *members) + name, 1)


def hostile():
    """Records that a backend could make up, and one good user to see that they have arrived."""
    users = [(b"toor", 0, 5000), (b"root", 5100, 5000), (b"daemon", 5101, 5000),
             (b"local", 5102, 5000), (b"borrowed", 1500, 5000), (b"low", 999, 5000),
             (b"max", 2**32 - 1, 5000), (b"nobodys", 65534, 5000), (b"shadowy", 5103, 42),
             (b"wheely", 5104, 0), (b"new\nroot:x:0:0::/:/bin/sh", 5105, 5000),
             (b"carla", 5106, 5000), (b"thief", 7001, 5000), (b"\xff\xfe", 5107, 5000),
             (b"a" * 60000, 5108, 5000), (b"", 5109, 5000), (b"in-lab", 5110, 8000)]
    records = [user(i, *entry) for i, entry in enumerate(users)]
    records.append(user(100, b"arrived", 5200, 5000))
    # The publisher knows lab's users under its own numbers. These lead to no user, or to users of this domain.
    members = [*range(len(users)), 100, 101, 102, 1 << 30, 2**32 - 1]
    groups = [(b"root", 5300), (b"shadow", 5301), (b"shadows", 42), (b"zeros", 0), (b"locals", 1500),
              (b"wheel-lab", 5302), (b"stolen", 8000), (b"mine", 5303)]
    records += [group(200 + i, name, gid, members) for i, (name, gid) in enumerate(groups)]
    # Groups in each other, and in themselves.
    records += [group(300, b"ring1", 5304, (301, 300)), group(301, b"ring2", 5305, (300,))]
    return records


def beyond():
    """An entry that exceeds the bounds by its number alone."""
    return [user(2**32 - 2, b"arrived", 5200, 5000)]


def image(epoch, sequence, records):
    flags = COMPLETE | CURRENT | REMOVALS_JUDGED
    header = struct.pack("<8sIIQQQQ", b"RSTDOM\r\n", 3, flags, epoch, 0, sequence, len(records))
    return header + b"".join(records)


def memfd(data):
    fd = os.memfd_create("image", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, F_ADD_SEALS, ALL_SEALS)
    return fd


def serve(bus, domain, records, signals=True):
    name = f"org.roster.Backend.{elements(domain)}"
    path = "/" + name.replace(".", "/")
    # Without a flag the bus queues an early request. This client gets the name once its owner is gone.
    bus.call(BUS, "/org/freedesktop/DBus", BUS, "RequestName", "su", name, 0)
    print("waiting", flush=True)
    epoch, sequence, fetched = 0x0BADBADBAD, 1, 0
    owned = False
    while True:
        ready = select.select([sys.stdin, bus.socket], [], [], 0.5)[0]
        if sys.stdin in ready and not sys.stdin.buffer.raw.read(1):
            return
        if not owned:
            pid = bus.call(BUS, "/org/freedesktop/DBus", BUS, "GetConnectionUnixProcessID", "s", name)
            owned = not isinstance(pid, str) and struct.unpack("<I", pid)[0] == os.getpid()
            if owned:
                print("owned", flush=True)
        if owned and signals:
            bus.send(SIGNAL, "ss", (domain, "ldap://nowhere"), path=path,
                     interface="org.roster.Backend1", member="DomainOnline")
            bus.send(SIGNAL, "tt", (epoch, sequence), path=path, interface="org.roster.Backend1",
                     member="Changed")
        message = bus.receive(0.2)
        while message is not None:
            kind, serial, fields, _ = message
            if kind == CALL:
                owned = True
                if fields[3] == "Fetch":
                    fd = memfd(image(epoch, sequence, records))
                    bus.send(RETURN, "h", (0,), fd=fd, reply=serial, destination=fields[7])
                    os.close(fd)
                    fetched += 1
                    print("fetched", fetched, flush=True)
                elif fields[3] == "LookUp":
                    bus.send(RETURN, "tty", (epoch, sequence + 1, b"".join(records)), reply=serial,
                             destination=fields[7])
                    print("looked up", flush=True)
                else:
                    bus.send(RETURN, reply=serial, destination=fields[7])
            message = bus.receive(0.05)


def main():
    bus = Bus(sys.argv[1])
    what, domain = sys.argv[2:]
    if what == "try":
        attempt(bus, domain)
    else:
        records = {"serve": hostile, "exceed": beyond, "silent": beyond}[what]()
        serve(bus, domain, records, signals=what != "silent")


main()
