# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of `bench/picture`: its selection from a result file, and the SVG that it draws.

Run: python3 -m unittest discover -s bench/tests
"""

import copy
import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from harness import contenders as who  # noqa: E402
from harness import picture_panels as panels  # noqa: E402
from harness import picture_svg as drawing  # noqa: E402
from harness.measure import summary  # noqa: E402
from harness.parts import exec, rootwrap  # noqa: E402

MS, S = 1e6, 1e9
SLAPD, DIRECTORY = "slapd, rfc2307", "10,201 users, 10,100 groups × 500"
WORDS = "10,201 users, 10,100 groups of 500 members"
SVG = "{http://www.w3.org/2000/svg}"
# Advance widths of DejaVu Sans, the widest of the common fonts, in 1/2048 of the font size.
DEJAVU = {
    "0": 1303, "m": 1995, "w": 1675, "M": 1767, "W": 2025, "a": 1255, "g": 1300, "r": 842, "t": 803, "i": 569,
    "f": 721, "-": 739, ",": 651, "(": 799, " ": 651, "A": 1401, "Q": 1612, "O": 1612, "µ": 1303, "×": 1716,
    "+": 1716, "“": 1061, "s": 1067, "D": 1577, "S": 1300, "l": 569, "I": 604, "/": 690, ";": 690, "'": 563,
    "%": 1946, "@": 2048, "=": 1716, "&": 1597, "_": 1024, "~": 1716, "#": 1716, "^": 1716, "<": 1716, "k": 1186,
    "…": 2048,
}  # fmt: skip
DEJAVU_BOLD = {"“": 1346, "I": 762, "f": 891, "l": 702, "i": 702, "t": 979, "r": 1010, "m": 2134}


def of(median, n=31):
    """A summary as the harness makes it."""
    return summary([median] * n)


def results():
    """A small result file of the true form. The figures are invented."""
    by_source = {
        who.FLOOR.name: of(2 * MS), who.ROSTER.name: of(3 * MS), who.ROSTER_LAST.name: of(4 * MS),
        who.NSCD.name: of(3.5 * MS), who.LIBNSS_CACHE.name: of(150 * MS), who.FILES.name: of(24.8 * S, 1),
    }  # fmt: skip
    peer = {"ready_ns": S, "limit_s": 60, "id_lite_cold_ns": MS}
    part = {"corpus": "10 k × 10 k × 500, consecutive", "faults": []}
    seen = {"p50": 100 * MS, "p99": 400 * MS, "max": 500 * MS, "n": 100}
    return {
        "origin": {
            "time": "2026-01-02 03:04:05 +0000", "commit": "0123456789ab", "cpu": "Example CPU", "processors": 2,
            "memory_mb": 24_105, "kernel": "6.1.0", "distribution": "Debian GNU/Linux 12 (bookworm)",
            "glibc": "glibc 2.36", "packages": {"nscd": "2.36-9", "sssd": "2.8.2-4", "opendoas": ""},
            "load_average_before": 0.1, "load_average_after": 0.9,
        },
        "options": {"quick": False, "repetitions": 101},
        "mirror": {
            "corpus": DIRECTORY,
            "roster": {
                SLAPD: {"id_floor_ns": of(4 * MS), "id_first_ns": of(6.2 * MS, 3), "id_ns": of(5 * MS)},
                "389-ds, rfc2307bis": {"id_floor_ns": of(9 * MS), "id_first_ns": of(9 * MS), "id_ns": of(9 * MS)},
            },
            "peers": {
                SLAPD: {
                    "sssd": peer | {"id_big_cold_ns": 16 * S, "id_big_warm_ns": of(9.5 * MS, 5)},
                    "nslcd": peer | {"id_big_cold_ns": None},
                }
            },
            "faults": [],
        },
        "programs": {
            "consecutive": part | {"user": "u1", "groups": 501, "members": 250_000, "tests": {"id": by_source}},
            "zipf": part | {"groups": 500, "tests": {"id": {who.ROSTER.name: of(8 * MS)}}},
        },
        "changes": {
            "roster": {
                f"{SLAPD}: {DIRECTORY}": {"count": 100, "unseen": 0, "all": seen, "users": 10_201, "server": "slapd"},
                "389-ds, rfc2307bis: x": {"count": 1, "unseen": 0, "all": seen, "users": 10_201, "server": "389-ds"},
            },
            "peers": {"sssd": {"seen_ns": None, "within_ms": 15_000}, "nslcd": {"seen_ns": 1.5 * MS, "within_ms": 15_000}},
            "storm": {},
            "faults": [],
        },
        "exec": {
            "programs": {exec.BARE: of(0.5 * MS), exec.OURS: of(0.9 * MS), "sudo": of(5 * MS), "doas": of(1.5 * MS)}
        },
        "rootwrap": {
            "calls": {
                rootwrap.OURS: of(1.2 * MS), rootwrap.OURS_STRICT: of(1.2 * MS), rootwrap.ORIGINAL: of(3 * MS),
                rootwrap.FLOOR: of(MS), "roster-rootwrap": of(2 * MS), "sudo": of(6 * MS),
                "sudo roster-rootwrap": of(7 * MS), "sudo rootwrap": of(150 * MS),
            }
        },
        "lookups": {
            "10000 consecutive": part
            | {"glibc": {"getpwnam": {name: of(each["median"] / 1e4) for name, each in by_source.items()}}}
        },
        "figures": [],
    }  # fmt: skip


def drawn(given=None):
    """The root element of the picture."""
    return ElementTree.fromstring(drawing.svg(panels.picture(results() if given is None else given)))


def of_class(root, tag, name):
    return [each for each in root.iter(SVG + tag) if name in each.get("class", "").split()]


def texts(root):
    return [each.text for each in root.iter(SVG + "text")]


def box(text):
    """Left, top, right and bottom of a text element, as an upper bound."""
    size, x, y = (float(text.get(name)) for name in ("font-size", "x", "y"))
    width = drawing.text_width(text.text, size, text.get("font-weight") == "bold")
    left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor", "start")]
    return left, y - drawing.ASCENT * size, left + width, y + drawing.DESCENT * size


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def rectangle(rect):
    x, y, width, height = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def luminance(colour):
    """Relative luminance of WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def bars_of(picture):
    """Label: bar, without the panels."""
    return {bar.label: bar for panel in picture.panels for bar in panel.bars}


class Selection(unittest.TestCase):
    def test_all_parts_make_four_panels(self):
        found = panels.picture(results())
        self.assertEqual([len(panel.groups) for panel in found.panels], [2, 1, 2, 1])

    def test_baseline_first_then_ascending(self):
        for panel in panels.picture(results()).panels:
            for group in panel.groups:
                rest = [bar.ns for bar in group.bars if bar.kind != panels.BASELINE]
                self.assertEqual(rest, sorted(rest), group.title)
                self.assertNotIn(panels.BASELINE, [bar.kind for bar in group.bars[1:]])

    def test_first_server_and_first_corpus(self):
        directory, text = panels.picture(results()).panels[0].groups
        self.assertEqual(directory.title, f"LDAP directory ({SLAPD}): {WORDS}; user in 501 groups")
        corpus = "10,000 users, 10,000 groups of 500 consecutive members"
        self.assertEqual(text.title, f"Text files: {corpus}; user in 501 groups")
        self.assertEqual({bar.label: bar.value for bar in text.bars}["roster"], "3.00 ms")

    def test_unknown_directory_has_no_group_count(self):
        given = results()
        given["mirror"]["corpus"] = "7 users"
        self.assertEqual(panels.picture(given).panels[0].groups[0].title, f"LDAP directory ({SLAPD}): 7 users")

    def test_quick_directory_has_its_group_count(self):
        self.assertEqual(panels._groups_of_user("2,000 users, 1,000 groups × 100"), 101)

    def test_peer_not_finished_shows_limit(self):
        found = panels.picture(results())
        self.assertEqual(bars_of(found)["nslcd, first id, one run"].value, "not within 60 s")
        self.assertEqual(bars_of(found)["SSSD, one change"].value, "not within 15 s")
        self.assertNotIn("nslcd, later id", bars_of(found))

    def test_single_run_is_called_so(self):
        self.assertIn("glibc files, one run", bars_of(panels.picture(results())))

    def test_few_changes_show_longest(self):
        given = results()
        given["changes"]["roster"][f"{SLAPD}: {DIRECTORY}"]["all"]["n"] = 20
        self.assertEqual(bars_of(panels.picture(given))["roster, longest"].value, "500 ms")

    def test_missing_part_leaves_out_its_group(self):
        for part in panels.PARTS:
            given = results()
            del given[part]
            found = panels.picture(given)
            self.assertEqual(sum(len(panel.groups) for panel in found.panels), 5, part)
            drawn(given)

    def test_single_part_is_enough(self):
        for part in panels.PARTS:
            given = {name: value for name, value in results().items() if name in ("origin", part)}
            self.assertEqual(len(panels.picture(given).panels), 1, part)
            drawn(given)

    def test_missing_peer_leaves_out_its_bar(self):
        given = results()
        del given["exec"]["programs"]["doas"]
        del given["mirror"]["peers"]
        found = bars_of(panels.picture(given))
        self.assertNotIn("doas", found)
        self.assertFalse([label for label in found if label.startswith("SSSD") and label != "SSSD, one change"])
        self.assertIn("sudo", found)

    def test_group_without_roster_is_left_out(self):
        given = results()
        del given["exec"]["programs"][exec.OURS]
        self.assertEqual(len(panels.picture(given).panels[2].groups), 1)

    def test_invalid_values_leave_out_their_bar(self):
        for value in (None, "3", True, 0, -1, math.nan, math.inf, 1e300, 1e-9, [], {}):
            given = results()
            given["exec"]["programs"]["doas"]["median"] = value
            self.assertNotIn("doas", bars_of(panels.picture(given)), value)
            drawn(given)

    def test_malformed_part_leaves_out_its_group(self):
        for part in panels.PARTS:
            for value in (None, [], {}, "text", 3, {"a": None}, {"roster": {"a": []}}, {"tests": 1}):
                given = results() | {part: value}
                self.assertGreaterEqual(len(panels.picture(given).panels), 3, (part, value))
                drawn(given)

    def test_small_print_has_machine_date_commit(self):
        text = " ".join(panels.picture(results()).notes)
        for words in ("Example CPU, 2 processors, 24 GiB of memory", "2026-01-02 03:04:05 +0000", "commit 0123456789ab",
                      "Linux 6.1.0", "glibc 2.36", "101 rounds", "sssd 2.8.2-4", "load average 0.1 before, 0.9 after"):  # fmt: skip
            self.assertIn(words, text)
        for words in ("opendoas", "quick", "wrong", "failed"):
            self.assertNotIn(words, text)

    def test_small_print_explains_shown_bars_only(self):
        given = {name: value for name, value in results().items() if name in ("origin", "exec")}
        for words in ("baseline module", "nslcd searches"):
            self.assertIn(words, " ".join(panels.picture(results()).notes))
            self.assertNotIn(words, " ".join(panels.picture(given).notes))

    def test_small_print_has_faults_and_failures(self):
        given = results() | {"failures": ["login: no slapd"]}
        given["options"]["quick"] = True
        given["mirror"]["faults"] = ["id big, SSSD"]
        given["programs"]["zipf"]["faults"] = ["id: roster: wrong"]
        text = " ".join(panels.picture(given).notes)
        for words in ("quick run", "wrong: 2.", "Parts that failed: login."):
            self.assertIn(words, text)


class Durations(unittest.TestCase):
    def test_three_digits_and_unit(self):
        cases = {0.364: "0.364 ns", 67: "67.0 ns", 850: "850 ns", 999.6: "1.00 µs", 1_234: "1.23 µs", 2.95e6: "2.95 ms",
                 154e6: "154 ms", 999.9e6: "1.00 s", 24.8e9: "24.8 s", 3600e9: "3,600 s"}  # fmt: skip
        for ns, text in cases.items():
            self.assertEqual(panels.duration(ns), text)

    def test_limits_have_no_more_digits_than_needed(self):
        self.assertEqual([panels.duration(ns, digits=None) for ns in (60e9, 1e6, 1.5e9)], ["60 s", "1 ms", "1.5 s"])


class Drawing(unittest.TestCase):
    def setUp(self):
        self.root = drawn()

    def test_size_and_view_box(self):
        self.assertEqual((self.root.get("width"), self.root.get("viewBox").split()[2]), ("860", "860"))
        self.assertEqual(self.root.get("height"), self.root.get("viewBox").split()[3])

    def test_title_and_description_come_first(self):
        self.assertEqual([each.tag for each in self.root][:2], [SVG + "title", SVG + "desc"])
        self.assertEqual(self.root.get("role"), "img")
        named = self.root.get("aria-labelledby").split()
        self.assertEqual([each.get("id") for each in self.root][:2], named)
        self.assertIn("SSSD, first id, one run 16.0 s", self.root[1].text)
        self.assertIn("Example CPU", self.root[1].text)

    def test_each_bar_has_label_and_value(self):
        shown = texts(self.root)
        for panel in panels.picture(results()).panels:
            for bar in panel.bars:
                self.assertIn(bar.label, shown)
                self.assertIn(bar.value, shown)

    def test_bars_are_proportional_to_logarithms(self):
        rects = [each for each in self.root.iter(SVG + "rect") if each.get("class") in (panels.ROSTER, panels.PEER)]
        rects = rects[2:]  # the first two are the legend
        for panel in panels.picture(results()).panels:
            bars = [bar for bar in panel.bars if bar.kind != panels.BASELINE]
            widths = {bar.ns: float(rect.get("width")) for bar, rect in zip(bars, rects)}
            rects = rects[len(bars) :]
            (low, short), *_, (high, long) = sorted(widths.items())
            decade = (long - short) / math.log10(high / low)
            self.assertGreater(decade, 40)
            for ns, width in widths.items():
                self.assertAlmostEqual(width, short + decade * math.log10(ns / low), delta=0.05)
        self.assertEqual(rects, [])

    def test_bars_begin_at_a_power_of_ten(self):
        for panel in panels.picture(results()).panels:
            axis = drawing.Axis(panel.bars, 200)
            self.assertEqual(axis.x(10.0**axis.first), 200)
            self.assertLess(2 * 10.0**axis.first, min(bar.ns for bar in panel.bars) * 1.000001)

    def test_only_roster_has_the_accent(self):
        picture = panels.picture(results())
        count = sum(bar.kind == panels.ROSTER for panel in picture.panels for bar in panel.bars)
        self.assertEqual(len(of_class(self.root, "rect", panels.ROSTER)), count + 1)  # and the legend

    def test_unfinished_bar_ends_in_an_arrow(self):
        self.assertEqual(len(of_class(self.root, "path", panels.PEER)), 2)

    def test_ticks_have_units(self):
        for text in ("1 ms", "10 s", "100 ns"):
            self.assertIn(text, texts(self.root))

    def test_output_is_deterministic(self):
        once = drawing.svg(panels.picture(results()))
        self.assertEqual(once, drawing.svg(panels.picture(json.loads(json.dumps(results())))))

    def test_no_script_and_no_reference(self):
        text = drawing.svg(panels.picture(results()))
        self.assertLessEqual({each.tag for each in self.root.iter()},
                             {SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "path", "text")})  # fmt: skip
        for words in ("href", "url(", "@import", "@font-face", "<script", "<!"):
            self.assertNotIn(words, text)
        self.assertEqual(re.findall(r"https?://[^\"]*", text), ["http://www.w3.org/2000/svg"])

    def test_fonts_are_generic(self):
        self.assertEqual(self.root.get("font-family"), "system-ui, sans-serif")


class Colours(unittest.TestCase):
    def test_dark_style_has_every_colour(self):
        style = next(drawn().iter(SVG + "style")).text
        light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
        for selector, name, *colours in drawing.COLOURS:
            self.assertIn(f"{selector} {{ {name}: {colours[0]} }}", light)
            self.assertIn(f"{selector} {{ {name}: {colours[1]} }}", dark)

    def test_every_class_has_a_colour(self):
        style = {selector for selector, *_ in drawing.COLOURS}
        for each in drawn().iter():
            for name in each.get("class", "").split():
                self.assertIn(f".{name}", style)

    def test_contrast_in_both_variants(self):
        for variant in (0, 1):
            colour = {(selector, name): colours[variant] for selector, name, *colours in drawing.COLOURS}
            paper = colour[".paper", "fill"]
            for selector in (".ink", ".dim"):
                self.assertGreater(contrast(colour[selector, "fill"], paper), 4.5)
            for key in ((".roster", "fill"), (".peer", "fill"), (".baseline", "stroke")):
                self.assertGreater(contrast(colour[key], paper), 3)
            # A print without colours shows brightness only, which is what this contrast compares.
            self.assertGreater(contrast(colour[".roster", "fill"], colour[".peer", "fill"]), 2)


class Escapes(unittest.TestCase):
    HOSTILE = "<b onload=\"x()\">&amp; ]]> \x00\x07\u202e\ud800 'é"

    def hostile(self):
        given = results()
        for field in ("cpu", "time", "commit", "kernel", "distribution", "glibc"):
            given["origin"][field] = self.HOSTILE
        given["origin"]["packages"] = {self.HOSTILE: self.HOSTILE}
        given["mirror"]["corpus"] = given["programs"]["consecutive"]["corpus"] = self.HOSTILE
        given["mirror"]["roster"] = {self.HOSTILE: given["mirror"]["roster"][SLAPD]}
        given["changes"]["roster"] = {self.HOSTILE: given["changes"]["roster"][f"{SLAPD}: {DIRECTORY}"]}
        return given | {"failures": [self.HOSTILE]}

    def test_hostile_text_is_escaped(self):
        root = drawn(self.hostile())
        self.assertFalse([each for each in root.iter() if each.tag == SVG + "b"])
        self.assertTrue([text for text in texts(root) if "<b onload=\"x()\">&amp; ]]>" in text])
        for text in [*texts(root), root[1].text]:
            self.assertFalse(set(text) & set("\x00\x07\u202e\ud800"))

    def test_hostile_text_is_utf_8(self):
        drawing.svg(panels.picture(self.hostile())).encode()

    def test_hostile_text_does_not_overlap(self):
        Layout.check(self, drawn(self.hostile()))


class Layout(unittest.TestCase):
    def check(self, root):
        """No text overlaps another one, a bar or the border."""
        boxes = [(box(each), each.text) for each in root.iter(SVG + "text")]
        height = float(root.get("height"))
        for place, (left, top, right, bottom) in enumerate(each for each, _ in boxes):
            name = boxes[place][1]
            self.assertGreaterEqual(min(left, top), 0, name)
            self.assertLessEqual(right, drawing.WIDTH - drawing.MARGIN + 0.01, name)
            self.assertLessEqual(bottom, height, name)
            for other, other_name in boxes[place + 1 :]:
                self.assertFalse(overlap(boxes[place][0], other), f"{name} / {other_name}")
        for kind in (panels.ROSTER, panels.PEER, panels.BASELINE):
            for rect in of_class(root, "rect", kind):
                for each, name in boxes:
                    self.assertFalse(overlap(rectangle(rect), each), name)

    def test_whole_picture_has_no_overlap(self):
        self.check(drawn())

    def test_single_parts_have_no_overlap(self):
        for part in panels.PARTS:
            self.check(drawn({name: value for name, value in results().items() if name in ("origin", part)}))

    def test_long_words_are_shortened(self):
        given = results()
        given["origin"]["cpu"] = "W" * 10_000
        given["origin"]["time"] = "wide words " * 1_000
        given["mirror"]["corpus"] = "users " * 100
        root = drawn(given)
        self.check(root)
        self.assertLess(float(root.get("height")), 1_200)

    def test_extreme_values_have_no_overlap(self):
        for low, high in ((1e-3, 1e15), (1, 1), (999.9, 999.9), (9.99e8, 1e9), (1e15, 1e15), (1.99, 2.01)):
            given = results()
            given["exec"]["programs"] = {exec.BARE: of(low), exec.OURS: of(low), "sudo": of(high), "doas": of(high)}
            self.check(drawn(given))

    def test_text_width_is_an_upper_bound(self):
        for letter, units in DEJAVU.items():
            self.assertGreaterEqual(drawing.text_width(letter, 2048), units, letter)
        for letter, units in DEJAVU_BOLD.items():
            self.assertGreaterEqual(drawing.text_width(letter, 2048, bold=True), units, letter)

    def test_wrapped_keeps_every_word(self):
        words = [f"word{number}" for number in range(30)]
        lines = drawing.wrapped(" ".join(words), drawing.SMALL, 820)
        self.assertGreater(len(lines), 1)
        self.assertEqual(" ".join(lines).split(), words)


class Command(unittest.TestCase):
    def run_picture(self, *arguments):
        return subprocess.run([BENCH / "picture", *arguments], capture_output=True, text=True, encoding="utf-8", timeout=60)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "result.json"
        self.file.write_text(json.dumps(results(), ensure_ascii=False), encoding="utf-8")

    def assert_error(self, ran, *words):
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        for each in words:
            self.assertIn(each, ran.stderr)

    def test_picture_on_standard_output(self):
        ran = self.run_picture(self.file)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(ran.stdout, drawing.svg(panels.picture(results())))

    def test_picture_in_a_file(self):
        output = self.folder / "picture.svg"
        ran = self.run_picture(self.file, "--output", output)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))
        self.assertEqual(output.read_text(encoding="utf-8"), drawing.svg(panels.picture(results())))

    def test_help_names_exit_codes(self):
        ran = self.run_picture("--help")
        self.assertEqual(ran.returncode, 0)
        for words in ("--output FILE", "Exit codes:", "  1  ", "  2  "):
            self.assertIn(words, ran.stdout)

    def test_wrong_usage_is_2(self):
        for arguments in ([], ["--no-such-option"], [self.file, "--output", self.file], [self.file, self.file]):
            self.assertEqual(self.run_picture(*arguments).returncode, 2, arguments)
        self.assertEqual(json.loads(self.file.read_text(encoding="utf-8"))["options"]["quick"], False)

    def test_unreadable_file_is_named(self):
        self.assert_error(self.run_picture(self.folder / "none.json"), "none.json", "No such file")
        self.assert_error(self.run_picture(self.folder), str(self.folder), "Is a directory")

    def test_unwritable_output_is_named(self):
        output = self.folder / "none/picture.svg"
        self.assert_error(self.run_picture(self.file, "--output", output), str(output), "No such file")

    def test_unusable_file_is_named_with_cause(self):
        origin = results()["origin"]
        cases = {
            "{": "not JSON",
            "\x00": "not JSON",
            "[" * 100_000: "result.json",
            "[]": "not an object",
            "{}": "lacks the machine, the date, the commit",
            json.dumps(results() | {"origin": origin | {"time": ""}}): "lacks the date",
            json.dumps({"origin": origin}): "none of the parts mirror, programs",
            json.dumps({"origin": origin, "module": {"a": 1}}): "The file has module.",
            json.dumps({"origin": origin, "programs": {}, "exec": {"programs": {}}}): "no figure of Roster in programs, exec",
        }
        for text, cause in cases.items():
            self.file.write_text(text, encoding="utf-8")
            self.assert_error(self.run_picture(self.file), str(self.file), cause)

    def test_binary_file_is_named(self):
        self.file.write_bytes(b"\xff\xfe\xfd{}")
        self.assert_error(self.run_picture(self.file), str(self.file), "not JSON")


class Input(unittest.TestCase):
    def test_results_stay_as_they_are(self):
        given = results()
        before = copy.deepcopy(given)
        drawn(given)
        self.assertEqual(given, before)


if __name__ == "__main__":
    unittest.main()
