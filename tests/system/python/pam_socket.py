# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends invalid requests to /run/roster/pam, then a valid one twice. Then sends it with this uid and with another one:
pam_socket.py USER PASSWORD UID."""

import socket
import struct
import sys

user, password = (word.encode() for word in sys.argv[1:3])
NO_UID = 0xFFFF_FFFF


def request(kind=0, user=user, password=password, new=b"", magic=b"RSPQ", version=1, zero=0, uid=NO_UID):
    fields = [user, b"socket", b"", b"", b"", password, new]
    lengths = map(len, fields)
    return struct.pack("<4sHH7HHI", magic, version, kind, *lengths, zero, uid) + b"".join(fields)


def said(*pieces):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect("/run/roster/pam")
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


whole = request()
for wrong in (
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    whole[:-1],
    whole[:7],
    request(kind=4),
    request(kind=65535),
    request(magic=b"RSTQ"),
    request(zero=1),
    request(user=b""),
    request(user=b"x" * 257),
    request(user=b"ali\0ce"),
    request(password=b"x" * 1025),
    request(password=password + b"\0"),
    request(password=password + b"\0" + b"x" * 1000),
    request(new=b"not in this kind"),
    request(kind=1),
):
    answer = said(wrong)
    assert answer == b"", (wrong, answer)

# Requests of another version get a header of this version, with the verdict "unavailable".
for other in (request(version=2), request(version=0x101)[:6], b"RSPQ" + b"\xff" * 20):
    answer = said(other)
    assert answer == struct.pack("<4sHHHHII", b"RSPA", 1, 10, 0, 0, 0, 0), (other, answer)

one = said(*[bytes([byte]) for byte in whole])
print("well:", struct.unpack_from("<H", one, 6)[0])
# A password that no user has, even if a server accepts an anonymous bind. The module would not have sent them.
for nobodys in (b"", b"x" * 1024):
    assert struct.unpack_from("<H", said(request(password=nobodys)), 6)[0] == 1, nobodys
# A recorded request gives an eavesdropper no more than its sender already had.
print("again:", struct.unpack_from("<H", said(whole), 6)[0])
print("logged out:", said(whole[:-1]).decode() or "none")
for uid in (int(sys.argv[3]), int(sys.argv[3]) + 1, 0):
    # Whether the password is right, and whether the user may in.
    both = [request(uid=uid), request(kind=1, password=b"", uid=uid)]
    print("with a uid:", *(struct.unpack_from("<H", said(one), 6)[0] for one in both))
