"""A table before it is text or Markdown."""

from dataclasses import dataclass


@dataclass
class Table:
    title: str
    header: list
    rows: list
    notes: list
