# SPDX-License-Identifier: MIT OR Apache-2.0
"""Returns decisions of oslo.rootwrap: one JSON document in, one out.

Text is bytes by their numbers (Latin-1) in both directions, so that arguments arrive exactly. A request has a
configuration with commands, or patterns with arguments.
"""

import configparser
import json
import logging
import os
import re
import sys
import warnings

from oslo_rootwrap import wrapper


def text(latin):
    return os.fsdecode(latin.encode('latin-1'))


def latin(text):
    return os.fsencode(text).decode('latin-1')


def load(conf):
    raw = configparser.RawConfigParser()
    raw.read(conf)
    config = wrapper.RootwrapConfig(raw)
    return config, wrapper.load_filters(config.filters_path)


def verdict(config, filters, command):
    args = [text(arg) for arg in command]
    try:
        match = wrapper.match_filter(filters, args, config.exec_dirs)
    except wrapper.NoFilterMatched:
        return {'refused': 'no filter'}
    except wrapper.FilterMatchNotExecutable as refusal:
        return {'refused': 'not executable', 'rule': latin(refusal.match.name)}
    except Exception:
        return {'refused': 'broken off'}
    argv = match.get_command(args, config.exec_dirs)
    env = match.get_environment(args)
    env = dict(os.environ) if env is None else env
    return {
        'rule': latin(match.name),
        'run_as': latin(match.run_as),
        'argv': [latin(arg) for arg in argv],
        'env': [[latin(name), latin(value)] for name, value in env.items()],
    }


def policy(case):
    os.environ.clear()
    os.environ.update({text(name): text(value) for name, value in case['env']})
    try:
        config, filters = load(text(case['conf']))
    except Exception:
        return None
    rules = [[latin(f.name), type(f).__name__, latin(f.exec_path), latin(f.run_as)] for f in filters]
    settings = [
        config.use_syslog,
        config.syslog_log_facility,
        config.syslog_log_level,
        config.daemon_timeout,
        config.rlimit_nofile,
    ]
    verdicts = [verdict(config, filters, command) for command in case['commands']]
    return {'rules': rules, 'settings': settings, 'verdicts': verdicts}


def pattern(case):
    try:
        matches = re.match(text(case['pattern']) + '$', text(case['arg']))
    except re.error:
        return 'bad'
    except Exception:
        return 'raises'
    return matches is not None


warnings.simplefilter('ignore')
logging.disable(logging.CRITICAL)
batch = json.load(sys.stdin)
os.chdir(batch['folder'])
json.dump(
    {
        'policies': [policy(case) for case in batch['policies']],
        'patterns': [pattern(case) for case in batch['patterns']],
    },
    sys.stdout,
)
