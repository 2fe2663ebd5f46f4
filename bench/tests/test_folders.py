# SPDX-License-Identifier: MIT OR Apache-2.0
"""Names of directories: two parts of one run never get the same one."""

import itertools
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness.folders import Folders  # noqa: E402

# Labels of the parts of bench/run, in any order, including shared ones.
LABELS = ("lookups-consecutive-10000", "keys", "room", "room", "nscd seen", "nscd/seen", "")


class FolderNames(unittest.TestCase):
    def test_same_label_twice_gives_two_folders(self):
        folders = Folders("/work")
        self.assertNotEqual(folders.new("room"), folders.new("room"))

    def test_any_order_of_labels_never_collides(self):
        for order in itertools.permutations(LABELS):
            folders = Folders("/work")
            given = [folders.new(label) for label in order]
            self.assertEqual(len(set(given)), len(LABELS))
            # None lies below another one either: making one never makes the other.
            self.assertEqual({path.parent for path in given}, {Path("/work")})

    def test_folders_of_one_label_have_one_length(self):
        folders = Folders("/work")
        self.assertEqual(len({len(str(folders.new("block"))) for _ in range(999)}), 1)

    def test_folder_is_left_for_caller_to_make(self):
        with tempfile.TemporaryDirectory() as root:
            Folders(root).new("room").mkdir()

    def test_parts_take_folders_from_allocator_only(self):
        """A path that a part derives from the run's own directory could clash with that of another part."""
        sources = [BENCH / "run", *(BENCH / "harness").rglob("*.py")]
        named = [f"{path.name}: {line.strip()}" for path in sources for line in path.read_text().splitlines()
                 if re.search(r"\bwork\s*/\s*", line)]  # fmt: skip
        allowed = {'answer = work / "answer"', 'self.tools, self.modules, self.peers = work / "tools", work / "modules", OUT / "peers"'}
        self.assertEqual([each for each in named if not any(each.endswith(line) for line in allowed)], [])


if __name__ == "__main__":
    unittest.main()
