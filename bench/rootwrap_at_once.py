"""The original's daemon, but that it runs nothing: every command has ended well at once. Whatever a client
waits for here is its own, and the protocol's.

usage: rootwrap_at_once.py CONF
"""

import sys

from oslo_rootwrap import cmd, daemon

daemon.RootwrapClass.run_one_command = lambda self, words, stdin=None: (0, "", "")
sys.argv[0] = "rootwrap-daemon"
cmd.daemon()
