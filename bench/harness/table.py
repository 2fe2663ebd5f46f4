# SPDX-License-Identifier: MIT OR Apache-2.0
"""A table before it is text or Markdown."""

from dataclasses import dataclass


@dataclass
class Table:
    title: str
    header: list
    rows: list
    notes: list
