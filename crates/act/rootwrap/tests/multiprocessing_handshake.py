# SPDX-License-Identifier: MIT OR Apache-2.0
"""The daemon and Python's multiprocessing: any CPython from 3.6 on, without other packages.

usage: multiprocessing_handshake.py DAEMON CONF
"""

import json
import socket
import struct
import subprocess
import sys
from multiprocessing import connection


class Connection:
    """A connection as in oslo_rootwrap.jsonrpc."""

    def __init__(self, address, key):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(address)
        connection.answer_challenge(self, key)
        connection.deliver_challenge(self, key)

    def send_bytes(self, data):
        self.socket.sendall(struct.pack('!Q', len(data)))
        self.socket.sendall(data)

    def recv_bytes(self, maxsize=None):
        size = struct.unpack('!Q', self.exactly(8))[0]
        assert maxsize is None or size <= maxsize
        return self.exactly(size)

    def exactly(self, size):
        data = self.socket.recv(size, socket.MSG_WAITALL) if size else b''
        if len(data) < size:
            raise EOFError
        return data

    def ask(self, *request):
        self.send_bytes(json.dumps(request).encode())
        return json.loads(self.recv_bytes().decode())


daemon = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
address = daemon.stdout.readline()[:-1].decode()
key = daemon.stdout.read(32)
assert len(key) == 32
assert Connection(address, key).ask(None, 'dummy', [], {}) == ['#RETURN', None]
kind, (name, methods) = Connection(address, key).ask(None, 'create', ['rootwrap'], {})
assert kind == '#RETURN' and 'run_one_command' in methods and methods == sorted(methods)
assert Connection(address, key).ask(None, 'incref', [name], {}) == ['#RETURN', None]
conn = Connection(address, key)
assert conn.ask(None, 'accept_connection', ['MainProcess'], {}) == ['#RETURN', None]
assert conn.ask(name, 'run_one_command', [['echo', 'hi'], None], {}) == ['#RETURN', [0, 'hi\n', '']]
assert conn.ask(name, 'run_one_command', [['cat'], {'__bytes__': '/wBB'}], {}) == ['#RETURN', [0, '\udcff\0A', '']]
try:
    Connection(address, bytes(32))
except connection.AuthenticationError:
    pass
else:
    raise AssertionError('any key is good')
assert conn.ask(name, 'shutdown', [], {}) == ['#RETURN', None]
assert daemon.wait() == 0
assert daemon.stderr.read() == b''
print(sys.version.split()[0])
