# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keys with any bytes arrive whole: a client under eventlet reads a pipe only once.

usage: eventlet_key_read.py DAEMON CONF
"""

import eventlet

eventlet.monkey_patch()

import sys

from eventlet.green import subprocess
from oslo_rootwrap import jsonrpc

# One in eight keys has a newline.
for _ in range(100):
    daemon = subprocess.Popen(
        sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    address = daemon.stdout.readline()[:-1].decode()
    key = daemon.stdout.read(32)
    assert len(key) == 32, key
    jsonrpc.JsonClient(address, key).close()
    daemon.terminate()
    assert daemon.wait() == 0
