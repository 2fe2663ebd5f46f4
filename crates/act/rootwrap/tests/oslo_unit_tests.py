# SPDX-License-Identifier: MIT OR Apache-2.0
"""The unit tests of oslo.rootwrap, unchanged, with Roster's evaluation in the place of its filters. Each call of a
filter writes a filter file, and `roster-rootwrap explain` decides.

usage: oslo_unit_tests.py ROOTWRAP DIRECTORY
"""

import functools
import os
import re
import shlex
import subprocess
import sys
import unittest

from oslo_rootwrap import filters, wrapper
from oslo_rootwrap.tests import test_rootwrap

ROOTWRAP, DIRECTORY = sys.argv[1:]
CONF = os.path.join(DIRECTORY, 'rootwrap.conf')
# Tests that change the process of oslo.rootwrap. Tests of Roster's evaluation have deleted executables, and those of
# policies have the rule for privsep-helper.
OF_ITS_INSIDES = [
    (test_rootwrap.RootwrapLoaderTestCase, 'test_privsep_in_loader'),
    (test_rootwrap.RootwrapTestCase, 'test_KillFilter_deleted_exe'),
    (test_rootwrap.RootwrapTestCase, 'test_KillFilter_upgraded_exe'),
    (test_rootwrap.RootwrapTestCase, 'test_KillFilter_renamed_exe'),
]
NOT_EXECUTABLE, UNAUTHORIZED = 96, 99
CHAINS = (filters.IpNetnsExecFilter, filters.ChainingRegExpFilter)
asked = 0


def rule(f):
    words = [f.exec_path, f.run_as, *f.args]
    if isinstance(f, filters.KillFilter):
        words = words[1:]
    elif isinstance(f, filters.ReadFileFilter):
        words = [f.file_path]
    assert not any(',' in word or '\n' in word for word in words), words
    return ', '.join([type(f).__name__, *words])


def explain(rules, command, exec_dirs):
    """The exit code, the number of the rule, and the command that would run."""
    global asked
    asked += 1
    with open(os.path.join(DIRECTORY, 'rules', 'a.filters'), 'w') as file:
        file.write('[Filters]\n' + ''.join(f'r{at}: {text}\n' for at, text in enumerate(rules)))
    with open(CONF, 'w') as file:
        file.write(f'[DEFAULT]\nfilters_path={DIRECTORY}/rules\n')
        if exec_dirs:
            file.write(f'exec_dirs={",".join(exec_dirs)}\n')
    ran = subprocess.run([ROOTWRAP, 'explain', CONF, '--', *command], capture_output=True, text=True)
    assert ran.returncode in (0, NOT_EXECUTABLE, UNAUTHORIZED), ran
    # The last line `FILE:LINE: rN (CLASS): reason` decides. Indented lines are about a chained command.
    numbers = [int(number) for number in re.findall(r'^\S.*: r(\d+) \(', ran.stdout, re.MULTILINE)]
    argv = shlex.split(ran.stdout.splitlines()[-1].split(': ', 2)[2]) if ran.returncode == 0 else None
    return ran.returncode, numbers[-1] if numbers else None, argv


def match(self, command):
    if not command:
        return empty(self)
    rules = [rule(self)]
    # A chaining rule needs a rule for the chained command.
    if isinstance(self, CHAINS):
        rules += [f'CommandFilter, {executable(word)}, {self.run_as}' for word in command if '/' not in word]
    code, number, _ = explain(rules, command, None)
    return code != UNAUTHORIZED and number == 0


def executable(name):
    path = os.path.join(DIRECTORY, 'bin', name)
    with open(path, 'w'):
        os.chmod(path, 0o755)
    return path


def empty(self):
    """`explain` requires a command. A call without one is refused."""
    return subprocess.run([ROOTWRAP, CONF], capture_output=True).returncode != 98


def get_command(original, self, command, exec_dirs=None):
    code, _, argv = explain([rule(self)], command, exec_dirs)
    if code != 0:
        return original(self, command, exec_dirs=exec_dirs)
    # Without directories oslo.rootwrap does not look for it.
    return argv if exec_dirs else [self.exec_path, *argv[1:]]


def match_filter(all_filters, command, exec_dirs=None):
    code, number, _ = explain([rule(f) for f in all_filters], command, exec_dirs)
    if code == UNAUTHORIZED:
        raise wrapper.NoFilterMatched()
    found = all_filters[number]
    if code == NOT_EXECUTABLE:
        raise wrapper.FilterMatchNotExecutable(match=found)
    return found


for cls in [filters.CommandFilter, *filters.CommandFilter.__subclasses__(), filters.ChainingRegExpFilter,
            filters.IpNetnsExecFilter]:  # fmt: skip
    cls.match = match
    if 'get_command' in vars(cls):
        cls.get_command = functools.partialmethod(
            lambda self, original, *args, **named: get_command(original, self, *args, **named), cls.get_command
        )
wrapper.match_filter = match_filter
for case, name in OF_ITS_INSIDES:
    assert hasattr(case, name), name
    setattr(case, name, None)
for name in ('rules', 'bin'):
    os.makedirs(os.path.join(DIRECTORY, name), exist_ok=True)
result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(test_rootwrap))
assert result.testsRun > 50 and asked > 90 and not result.skipped, (result, asked)
sys.exit(not result.wasSuccessful())
