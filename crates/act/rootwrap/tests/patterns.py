# SPDX-License-Identifier: MIT OR Apache-2.0
"""Returns the results of Python for patterns: one pattern a line in, one answer a line out, in JSON.

A line is a pattern and words. The answer has two texts, for `re.match` with `$` behind the pattern, as the original
does it, and for `re.fullmatch`. Each has a character for each word: 1 where it matches, 0 where it does not,
E where CPython finds itself in error. If Python does not compile the pattern, the text is the name of the error.
"""

import json
import re
import sys
import warnings


def compiled(pattern):
    try:
        return re.compile(pattern)
    except re.error:
        return 'bad'
    except Exception:
        return 'raises'


def answers(pattern, words, method):
    if isinstance(pattern, str):
        return pattern
    match = getattr(pattern, method)
    return ''.join(answer(match, word) for word in words)


def answer(match, word):
    try:
        return '0' if match(word) is None else '1'
    except SystemError:
        return 'E'


warnings.simplefilter('ignore')
for line in sys.stdin:
    pattern, words = json.loads(line)
    both = [answers(compiled(pattern + '$'), words, 'match'), answers(compiled(pattern), words, 'fullmatch')]
    re.purge()
    print(json.dumps(both))
