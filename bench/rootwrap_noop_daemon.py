# SPDX-License-Identifier: MIT OR Apache-2.0
"""The daemon of oslo.rootwrap, but it runs nothing: every command ends well at once. All waits of a client here are its
own, and the protocol's.

usage: rootwrap_noop_daemon.py CONF
"""

import sys

from oslo_rootwrap import cmd, daemon

daemon.RootwrapClass.run_one_command = lambda self, words, stdin=None: (0, "", "")
sys.argv[0] = "rootwrap-daemon"
cmd.daemon()
