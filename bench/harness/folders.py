"""Names of folders within one run: the one allocator, so that any set of parts runs together in any order.

Makes nothing itself: the caller makes the folder, or hands the path to code that does. Neighbours: `bench/run` owns
one for the whole run; parts ask through `bench.folder`.
"""

import itertools
import re
from pathlib import Path


class Folders:
    def __init__(self, root):
        self.root = Path(root)
        self._numbers = itertools.count(1)

    def new(self, label):
        """A path that this run has not given out before. The number makes it unique; the label tells a reader what
        lies there. The number has a constant width: a path that is longer takes longer to look up."""
        number = next(self._numbers)
        return self.root / f"{number:04}-{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}"
