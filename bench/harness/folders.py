# SPDX-License-Identifier: MIT OR Apache-2.0
"""Names of directories within one run: the one allocator, so that any set of parts runs together in any order.

Makes nothing itself: the caller makes the directory, or passes the path to code that does. Neighbours: `bench/run` has
one for the whole run; parts use it through `bench.folder`.
"""

import itertools
import re
from pathlib import Path


class Folders:
    def __init__(self, root):
        self.root = Path(root)
        self._numbers = itertools.count(1)

    def new(self, label):
        """The number makes it unique; the label describes its content."""
        number = next(self._numbers)
        return self.root / f"{number:04}-{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}"
