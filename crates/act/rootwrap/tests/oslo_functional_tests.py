# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functional tests of oslo.rootwrap, unchanged, with the executables of Roster.

usage: [TEST_EVENTLET=1] oslo_functional_tests.py ROOTWRAP DAEMON
"""

import os
import sys
import unittest

ROOTWRAP, DAEMON = sys.argv[1:]

if os.environ.get('TEST_EVENTLET'):
    from oslo_rootwrap.tests import test_functional_eventlet as tests
    from oslo_rootwrap.tests.test_functional_eventlet import test_functional

    from eventlet import tpool

    # One test opens a FIFO in the only thread, which also has to open the other end. It would block with the daemon of
    # oslo.rootwrap, too, so files are opened in another thread.
    test_functional.open = lambda path: tpool.execute(open, path)
else:
    from oslo_rootwrap.tests import test_functional

    tests = test_functional


def in_place_of(case, replace):
    set_up = case.setUp

    def replaced(self):
        set_up(self)
        replace(self)

    case.setUp = replaced


def call(self):
    self.cmd = [ROOTWRAP, self.config_file]


def daemon(self):
    self.client._start_command = [DAEMON, self.config_file]


in_place_of(test_functional.RootwrapTest, call)
in_place_of(test_functional.RootwrapDaemonTest, daemon)
result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(tests))
assert result.testsRun > 10 and not result.skipped, result
sys.exit(not result.wasSuccessful())
