# SPDX-License-Identifier: MIT OR Apache-2.0
"""The link lint finds broken links, and no others."""

import pathlib
import sys
import unittest

LINT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/lint-prose"
sys.path.insert(0, str(LINT))
sys.dont_write_bytecode = True

import links  # noqa: E402

OTHER = '# A *page*: `x_y`, twice!\n\n## Part\n\nOld heading\n---\n\n## Part\n\n<a id="mark"></a>\n\n```sh\n# no heading\n```\n'

ACCEPTED = """
[a](docs/other.md)
[a](docs/other.md#a-page-x_y-twice)
[a](docs/other.md#part-1)
[a](docs/other.md#old-heading)
[a](docs/other.md#mark)
[a](docs)
[a](docs/)
[a](#title)
[a](Makefile "a title")
[a](https://example.com/none#no)
[![badge](Makefile)](docs/other.md)
`[a](none.md)`
[a][ref]\n\n[ref]: docs/other.md
""".strip("\n").replace("\\n", "\n")

REJECTED = """
[a](none.md)
[a](other.md)
[a](../docs/other.md)
[a](docs/other.md#none)
[a](docs/other.md#no-heading)
[a](docs/other.md#Part)
[a](#none)
[a [b] c](none.md)
[a][none]
[ref]: none.md
""".strip().splitlines()


def found(text):
    pages = {"page.md": "# Title\n\n" + text + "\n", "docs/other.md": OTHER}
    return links.findings(pages, {*pages, "Makefile"})


class Links(unittest.TestCase):
    def test_links_to_files_and_headings_are_accepted(self):
        for text in ACCEPTED.replace("\n\n", "\0").split("\n"):
            self.assertEqual(found(text.replace("\0", "\n\n")), [], text)

    def test_broken_links_are_reported(self):
        for text in REJECTED:
            report = found(text)
            self.assertEqual(len(report), 1, text)
            self.assertTrue(report[0].startswith("page.md:3: "), report)

    def test_links_are_relative_to_their_page(self):
        pages = {"docs/other.md": "[up](../page.md)\n", "page.md": ""}
        self.assertEqual(links.findings(pages, set(pages)), [])


if __name__ == "__main__":
    unittest.main()
