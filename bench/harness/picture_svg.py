# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws a Picture as SVG: horizontal bars on logarithmic axes, one axis a panel.

The file needs nothing but itself: no script, no font, no other file. Colours come from one style element, with a dark
variant for screens. Widths of text are upper bounds of common sans-serif fonts, so texts do not touch in any of them.
"""

import math
import unicodedata
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from .picture_panels import BASELINE, PEER, ROSTER, duration

WIDTH, MARGIN = 860, 20
RIGHT = WIDTH - MARGIN
TITLE, HEADING, LABEL, SMALL = 17, 14, 12, 11  # font sizes
LABELS_MAX = 260  # of the width
GAP = 6  # between a bar and its texts
ROW, BAR = 17, 11
ARROW = 8  # the length of an arrow, at the end of a bar that would have gone on
ASCENT, DESCENT = 0.95, 0.27  # of a font size: no glyph of a line reaches beyond
LINE = 1.35  # of a font size: from one line of small print to the next
NOTE_LINES_MAX = 3
TICKS_APART = 10
# Upper bounds of the advance width, in font sizes.
NARROW, SPACE, NORMAL, CAPITAL, WIDE = 0.42, 0.35, 0.66, 0.80, 1.0
NARROW_LETTERS, WIDE_LETTERS = "fijlrtI.,:;'!|()[]/-", "mwMW@%+<=>~^#"
BOLD = 1.18

# Selector: property, light, dark. Greys differ in brightness, too, for a print without colours.
COLOURS = (
    (".paper", "fill", "#ffffff", "#0d1117"),
    (".ink", "fill", "#1f2328", "#e6edf3"),
    (".dim", "fill", "#57606a", "#9da7b1"),
    (".grid", "stroke", "#d8dee4", "#30363d"),
    (f".{ROSTER}", "fill", "#0a4f9e", "#79c0ff"),
    (f".{PEER}", "fill", "#8b949e", "#6e7681"),
    (f".{BASELINE}", "fill", "#ffffff", "#0d1117"),
    (f".{BASELINE}", "stroke", "#6e7781", "#9da7b1"),
    (".value", "stroke", "#ffffff", "#0d1117"),
)
TITLE_TEXT = "Roster beside its peers"
SCALE_TEXT = "Logarithmic scales; a shorter bar is better. Medians, unless a label says otherwise."
LEGEND = ((ROSTER, "Roster"), (PEER, "other software"), (BASELINE, "baseline: the minimum here"))


@dataclass(frozen=True)
class Text:
    x: float
    y: float  # of the base line
    text: str
    size: int = LABEL
    css: str = "ink"
    bold: bool = False
    anchor: str = "start"

    def svg(self):
        bold = ' font-weight="bold"' if self.bold else ""
        anchor = f' text-anchor="{self.anchor}"' if self.anchor != "start" else ""
        place = f'x="{number(self.x)}" y="{number(self.y)}" font-size="{self.size}"'
        return f'<text class="{self.css}" {place}{bold}{anchor}>{escape(printable(self.text))}</text>'


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    css: str

    def svg(self):
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        return f'<rect class="{self.css}" x="{number(self.x)}" y="{number(self.y)}" {size}/>'


@dataclass(frozen=True)
class Path:
    d: str
    css: str

    def svg(self):
        return f'<path class="{self.css}" d="{self.d}"/>'


def svg(picture):
    """The same Picture results in the same bytes."""
    bars_x = MARGIN + _label_width(picture) + GAP
    shapes, y = _head()
    for panel in picture.panels:
        drawn, y = _panel(panel, bars_x, y)
        shapes += drawn
    drawn, height = _small_print(picture.notes, y)
    shapes += drawn
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"',
        '  role="img" aria-labelledby="roster-title roster-desc" font-family="system-ui, sans-serif">',
        f'<title id="roster-title">{escape(TITLE_TEXT)}</title>',
        f'<desc id="roster-desc">{escape(printable(description(picture)))}</desc>',
        f"<style>\n{_style()}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        *(shape.svg() for shape in shapes),
        "</svg>\n",
    ])  # fmt: skip


def description(picture):
    """The whole content as sentences, for screen readers."""
    said = [SCALE_TEXT]
    for panel in picture.panels:
        said.append(panel.heading)
        for group in panel.groups:
            said.append(f"{group.title}: " + "; ".join(f"{bar.label} {bar.value}" for bar in group.bars) + ".")
    return " ".join([*said, *picture.notes])


def _style():
    def rules(variant):
        return [f"{selector} {{ {name}: {colours[variant]} }}" for selector, name, *colours in COLOURS]

    return "\n".join([
        *rules(0),
        ".grid { stroke-width: 1 }",
        f".{BASELINE} {{ stroke-width: 1 }}",
        # A margin in the colour of the paper, where a value lies on a line of the grid.
        ".value { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round }",
        "@media screen and (prefers-color-scheme: dark) {",
        *(f"  {rule}" for rule in rules(1)),
        "}",
    ])  # fmt: skip


def _head():
    baseline = MARGIN + TITLE
    shapes = [Text(MARGIN, baseline, TITLE_TEXT, TITLE, bold=True)]
    # Right-aligned: the loop begins with the rightmost entry.
    x = RIGHT
    for kind, text in reversed(LEGEND):
        x -= text_width(text, LABEL)
        shapes.append(Text(x, baseline, text, LABEL, "dim"))
        x -= GAP + BAR
        shapes.append(_bar_shape(x, baseline - BAR + 1, BAR, kind))
        x -= 16
    baseline += 20
    shapes.append(Text(MARGIN, baseline, SCALE_TEXT, LABEL, "dim"))
    return shapes, baseline + 6


def _panel(panel, bars_x, y):
    """The shapes, and where the next panel begins."""
    axis = Axis(panel.bars, bars_x)
    y += 22
    texts = [Text(MARGIN, y, shortened(panel.heading, HEADING, RIGHT - MARGIN, bold=True), HEADING, bold=True)]
    bars, grid = [], []
    for group in panel.groups:
        y += 17
        texts.append(Text(MARGIN, y, shortened(group.title, LABEL, RIGHT - MARGIN), LABEL, "dim"))
        y += 5
        begin = y
        for bar in group.bars:
            drawn, labels = _row(bar, axis, y)
            bars += drawn
            texts += labels
            y += ROW
        grid += [f"M{number(x)} {number(begin)}V{number(y)}" for x, _ in axis.lines()]
    y += 12
    texts += [Text(x, y, text, SMALL, "dim", anchor="middle") for x, text in axis.ticks()]
    return [Path("".join(grid), "grid"), *bars, *texts], y + 4


def _row(bar, axis, y):
    bold = bar.kind == ROSTER
    top = y + (ROW - BAR) / 2
    end = axis.x(bar.ns)
    baseline = top + BAR - 1.5
    shapes = [_bar_shape(axis.begin, top, end - axis.begin, bar.kind)]
    if bar.beyond:
        half = number(BAR / 2 + 3)
        shapes.append(Path(f"M{number(end)} {number(top - 3)}l{ARROW} {half}l-{ARROW} {half}z", bar.kind))
    label = shortened(bar.label, LABEL, axis.begin - GAP - MARGIN, bold)
    return shapes, [
        Text(axis.begin - GAP, baseline, label, LABEL, bold=bold, anchor="end"),
        Text(end + _after(bar), baseline, bar.value, LABEL, "ink value", bold),
    ]


def _after(bar):
    """From the end of a bar to its value."""
    return GAP + (ARROW if bar.beyond else 0)


def _bar_shape(x, y, width, kind):
    if kind == BASELINE:
        # Its line lies within the bar's length.
        return Rectangle(x + 0.5, y + 0.5, max(0.5, width - 1), BAR - 1, kind)
    return Rectangle(x, y, width, BAR, kind)


class Axis:
    """Logarithmic, from a power of ten on that leaves the shortest bar a visible length."""

    def __init__(self, bars, begin):
        self.begin = begin
        self.first = math.floor(math.log10(min(bar.ns for bar in bars) / 2))
        # The longest that leaves each bar the space for its value.
        self.decade = min(
            (RIGHT - begin - _after(bar) - text_width(bar.value, LABEL, bar.kind == ROSTER)) / self._decades(bar.ns)
            for bar in bars
        )
        self.decades = math.floor(max(self._decades(bar.ns) for bar in bars))

    def _decades(self, ns):
        return math.log10(ns) - self.first

    def x(self, ns):
        return self.begin + self._decades(ns) * self.decade

    def lines(self):
        """Place and value of each power of ten."""
        return [(self.begin + each * self.decade, 10.0 ** (self.first + each)) for each in range(self.decades + 1)]

    def ticks(self):
        """Place and text, no nearer than the texts allow."""
        lines = [(x, duration(ns, digits=None)) for x, ns in self.lines()]
        widest = max(text_width(text, SMALL) for _, text in lines)
        step = max(1, math.ceil((widest + TICKS_APART) / self.decade))
        return [(x, text) for x, text in lines[::step] if x + text_width(text, SMALL) / 2 <= RIGHT]


def _label_width(picture):
    bars = [bar for panel in picture.panels for bar in panel.bars]
    return min(LABELS_MAX, max(text_width(bar.label, LABEL, bar.kind == ROSTER) for bar in bars))


def _small_print(notes, y):
    """The shapes, and the height of the picture."""
    y += 10
    shapes = [Path(f"M{MARGIN} {number(y)}H{RIGHT}", "grid")]
    y += 4
    for note in notes:
        for line in wrapped(note, SMALL, RIGHT - MARGIN):
            y += SMALL * LINE
            shapes.append(Text(MARGIN, y, line, SMALL, "dim"))
    return shapes, math.ceil(y + 14)


def text_width(text, size, bold=False):
    """An upper bound, in pixels."""
    return sum(map(_advance, printable(text))) * size * (BOLD if bold else 1)


def _advance(letter):
    if letter == " ":
        return SPACE
    if letter in NARROW_LETTERS:
        return NARROW
    if letter in WIDE_LETTERS or not letter.isascii():
        return WIDE
    return CAPITAL if letter.isupper() or letter in "&_" else NORMAL


def shortened(text, size, room, bold=False):
    """As much of the text as fits, with an ellipsis if that is not all."""
    text = printable(text)
    if text_width(text, size, bold) <= room:
        return text
    return text[: _fitting(text, room - text_width("…", size, bold), size, bold)].rstrip() + "…"


def _fitting(pieces, room, size, bold=False):
    """The number of leading pieces that fit."""
    used = 0
    for count, piece in enumerate(pieces):
        used += text_width(piece, size, bold)
        if used > room:
            return count
    return len(pieces)


def wrapped(text, size, room):
    """Lines that fit, the last one shortened when there would be more than NOTE_LINES_MAX."""
    lines, words = [], printable(text).split()
    while words and len(lines) < NOTE_LINES_MAX - 1:
        # No space follows at the end of a line.
        count = max(1, _fitting([word + " " for word in words], room + text_width(" ", size), size))
        lines.append(shortened(" ".join(words[:count]), size, room))
        words = words[count:]
    return [*lines, shortened(" ".join(words), size, room)] if words else lines


def printable(text):
    """Without characters that XML forbids or that change the direction of text."""
    return "".join("\ufffd" if unicodedata.category(letter)[0] == "C" else letter for letter in text)


def number(value):
    """At most two decimals: the same in every run."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
