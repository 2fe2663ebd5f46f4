# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the PAM return codes for each reply of a responder: pam_return_codes.py MODULE USER.

Listens at /run/roster/pam in the responder's place, and calls libpam as a program does. Prints a line for each valid
verdict and for each invalid reply. A line has the reply, then the results of pam_authenticate, pam_acct_mgmt, and
pam_chauthtok in its two parts.
"""

import ctypes
import os
import socket
import struct
import sys
import tempfile
import threading

module, user = sys.argv[1:]
# As in pam(3), by their numbers.
CODES = """SUCCESS OPEN_ERR SYMBOL_ERR SERVICE_ERR SYSTEM_ERR BUF_ERR PERM_DENIED AUTH_ERR CRED_INSUFFICIENT
AUTHINFO_UNAVAIL USER_UNKNOWN MAXTRIES NEW_AUTHTOK_REQD ACCT_EXPIRED SESSION_ERR CRED_UNAVAIL CRED_EXPIRED CRED_ERR
NO_MODULE_DATA CONV_ERR AUTHTOK_ERR AUTHTOK_RECOVERY_ERR AUTHTOK_LOCK_BUSY AUTHTOK_DISABLE_AGING TRY_AGAIN IGNORE ABORT
AUTHTOK_EXPIRED""".split()
PREPARE = 2


def answer(verdict=0, magic=b"RSPA", version=1, flags=0, messages=0, messages_bytes=0, blob_bytes=0):
    return struct.pack("<4sHHHHII", magic, version, verdict, flags, messages, messages_bytes, blob_bytes)


# The reply, and whether the preparation of a password change gets it, too. Otherwise that gets a yes.
said, to_all = b"", True


def serve():
    while True:
        with listener.accept()[0] as connection:
            try:
                head = connection.recv(28, socket.MSG_WAITALL)
                kind, *lengths = struct.unpack_from("<H7H", head, 6)
                connection.recv(sum(lengths), socket.MSG_WAITALL)
                connection.sendall(answer() if kind == PREPARE and not to_all else said)
            except OSError:
                # The module has closed the connection: it had received enough.
                pass


class Message(ctypes.Structure):
    _fields_ = [("style", ctypes.c_int), ("text", ctypes.c_char_p)]


class Response(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("code", ctypes.c_int)]


CONVERSE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(Message)),
    ctypes.POINTER(ctypes.POINTER(Response)),
    ctypes.c_void_p,
)


class Conversation(ctypes.Structure):
    _fields_ = [("converse", CONVERSE), ("data", ctypes.c_void_p)]


libc = ctypes.CDLL(None)
libc.calloc.restype = libc.strdup.restype = ctypes.c_void_p
libpam = ctypes.CDLL("libpam.so.0")
has_conversation = True


@CONVERSE
def converse(count, messages, responses, _):
    if not has_conversation:
        return CODES.index("CONV_ERR")
    array = ctypes.cast(libc.calloc(count, ctypes.sizeof(Response)), ctypes.POINTER(Response))
    for number in range(count):
        array[number].text = libc.strdup(b"a password")
    responses[0] = array
    return 0


def call(function):
    handle = ctypes.c_void_p()
    conversation = Conversation(converse, None)
    arguments = (b"table", user.encode(), ctypes.byref(conversation), folder.encode(), ctypes.byref(handle))
    assert libpam.pam_start_confdir(*arguments) == 0
    code = function(handle, 0)
    libpam.pam_end(handle, code)
    return CODES[code]


def row(what):
    global to_all
    codes = [call(libpam.pam_authenticate), call(libpam.pam_acct_mgmt), call(libpam.pam_chauthtok)]
    to_all = False
    codes.append(call(libpam.pam_chauthtok))
    to_all = True
    print(what, *codes)


os.makedirs("/run/roster")
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/table", "w") as stack:
        for kind in ("auth", "account", "password"):
            stack.write(f"{kind} required {module} nodelay\n")
    row("nobody-listens")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("/run/roster/pam")
    listener.listen()
    threading.Thread(target=serve, daemon=True).start()
    for verdict in range(15):
        said = answer(verdict)
        row(verdict)
    for what, said in {
        "hangs-up": b"",
        "half-an-answer": answer()[:10],
        "another-protocol": answer(magic=b"RSTA"),
        "another-version": answer(version=2),
        "verdict-15": answer(15),
        "verdict-65535": answer(65535),
        "unknown-flags": answer(flags=2),
        "a-message-that-is-missing": answer(messages=1, messages_bytes=10),
        "too-many-messages": answer(messages=33),
        "a-blob-that-is-missing": answer(blob_bytes=10),
        "a-blob-too-large": answer(blob_bytes=0xFFFF_FFFF),
    }.items():
        row(what)
    said, has_conversation = answer(), False
    row("no-conversation")
