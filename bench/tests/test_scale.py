# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the values that the part `scale` computes from files of /proc, and of its directories and changes.

Run: python3 -m unittest discover -s bench/tests
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import footprint, scale_report  # noqa: E402
from harness import scale_directory as sd  # noqa: E402
from harness.daemons import TICKS  # noqa: E402
from harness.ldap import parsed  # noqa: E402
from harness.parts import scale  # noqa: E402

SMAPS = """\
55d0c0000000-55d0c0200000 r-xp 00001000 fe:00 131 /usr/sbin/rosterd
Size:               2048 kB
Rss:                1500 kB
Pss:                 700 kB
Pss_Dirty:            16 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0001000000 r--s 00000000 fe:00 4711 /var/lib/roster/roster.v3.snap
Size:              16384 kB
Pss:                4000 kB
Pss_Dirty:             0 kB
7f0002000000-7f0003000000 r--s 00000000 fe:00 4710 /roster/roster.v3.snap (deleted)
Pss:                 300 kB
7f0004000000-7f0005000000 rw-s 00000000 fe:00 4712 /roster/.roster.v3.snap.new
Pss:                  20 kB
7f0006000000-7f0007000000 rw-s 00000000 fe:00 4713 /roster/roster.v3.snap.bak
Pss:                   9 kB
7f1000000000-7f1000100000 rw-p 00000000 00:00 0\x20
Pss:                 128 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Pss:                  12 kB
"""


class Footprint(unittest.TestCase):
    def test_snapshot_pss_counts_all_generations(self):
        self.assertEqual(footprint.snapshot_pss(SMAPS), (4000 + 300 + 20) * 1024)

    def test_snapshot_pss_without_mapping_is_zero(self):
        without = SMAPS.replace("roster.v3.snap", "roster.list")
        self.assertEqual(footprint.snapshot_pss(without), 0)

    def test_kilobytes_of_rollup(self):
        text = "7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 100 kB\nPss:  40 kB\nPss_Shmem:  8 kB\nVmFlags: rd\n"
        self.assertEqual(footprint.kilobytes(text), {"Rss": 102_400, "Pss": 40_960, "Pss_Shmem": 8_192})

    def test_written_bytes_and_cancelled(self):
        text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 512\n"
        self.assertEqual(footprint.written_bytes(text), (4096, 512))

    def test_cpu_ticks_include_ended_children(self):
        text = "17 (a b) c) S 1 17 17 0 -1 4194560 10 20 0 0 7 5 30 40 20 0 1 0 100 0 0\n"
        self.assertEqual(footprint.cpu_ticks(text), 7 + 5 + 30 + 40)

    def test_busy_ticks_leave_out_idle(self):
        self.assertEqual(footprint.busy_ticks("cpu  1 2 3 1000 500 4 5 6 7 8\ncpu0 9 9\n"), 1 + 2 + 3 + 4 + 5 + 6)

    def test_usage_sums_roles_and_subtracts(self):
        before, after = footprint.Usage(), footprint.Usage()
        before.add("backend", TICKS, 4096, 0)
        after.add("backend", 2 * TICKS, 8192, 100)
        after.add("backend", TICKS, 10, 0)
        after.add("publisher", TICKS, 1_000, 0)
        spent = after.since(before)
        self.assertEqual(spent.cpu_s, 3)
        self.assertEqual(spent.written, {"backend": 8192 + 10 - 4096, "publisher": 1_000})
        self.assertEqual((spent.written_bytes, spent.cancelled_bytes), (5_106, 100))

    def test_usage_reads_own_process(self):
        class Own:
            import os

            pid = os.getpid()

            @staticmethod
            def role_of(_pid):
                return "test"

        now = footprint.usage(Own)
        self.assertEqual(set(now.ticks), {"test"})
        self.assertGreater(footprint.memory(Own).total, 1_000_000)


class Shapes(unittest.TestCase):
    def test_sizes_of_the_issue(self):
        shapes = [str(shape) for shape in sd.SIZES.values()]
        wanted = ["2,000 × 300 × 30", "10,000 × 10,000 × 500", "200,000 × 20,000 × 50", "1,000,000 × 100,000 × 20"]
        self.assertEqual(shapes, wanted)

    def test_teams_on_top_of_small_groups(self):
        self.assertEqual(sd.SIZES["2k"].all_groups, 304)
        self.assertEqual(sd.SIZES["10k"].all_groups, 10_000)

    def test_sizes_named_rejects_unknown(self):
        self.assertEqual(sd.sizes_named("2k, 1m"), ["2k", "1m"])
        for text in ("3k", "", "2k,x"):
            with self.assertRaises(ValueError):
                sd.sizes_named(text)

    def test_groups_have_the_members_asked_for(self):
        shape = sd.ScaleShape(600, 5, 30)
        found = list(sd.groups(shape, 1))
        self.assertEqual([name for name, _, _ in found][:5], ["team0", "team1", "team2", "team3", "g0"])
        self.assertEqual([len(set(members)) for _, _, members in found], [500] * 4 + [30] * 5)
        self.assertNotIn("probe", {member for _, _, members in found for member in members})
        self.assertEqual(found, list(sd.groups(shape, 1)))
        self.assertNotEqual(found, list(sd.groups(shape, 2)))

    def test_ldif_counts_and_schema(self):
        shape = sd.ScaleShape(600, 3, 20)
        for schema, attribute in (("rfc2307", "memberUid: u"), ("rfc2307bis", "member: uid=u")):
            text = "".join(sd.ldif(shape, 1, schema))
            self.assertEqual(text.count("objectClass: posixAccount"), 600)
            self.assertEqual(text.count("objectClass: posixGroup"), 7)
            self.assertEqual(text.count(f"\n{attribute}"), 4 * 500 + 3 * 20)
            self.assertTrue(text.endswith("\n\n"))


class Changes(unittest.TestCase):
    def setUp(self):
        self.work = sd.Workload(sd.ScaleShape(600, 3, 20), "rfc2307")

    def test_gecos_counts_up(self):
        steps = [self.work.next("gecos") for _ in range(3)]
        self.assertEqual([(step.before, step.after) for step in steps], [(0, 1), (1, 2), (2, 3)])
        self.assertIn(b"probe 3", steps[2].request)

    def test_membership_joins_and_leaves_each_team(self):
        watched = [self.work.next("membership").watch for _ in range(4)]
        self.assertEqual(watched, ["has team0 probe", "lacks team0 probe", "has team1 probe", "lacks team1 probe"])

    def test_added_users_are_removed_in_order(self):
        added = [self.work.next("user added") for _ in range(2)]
        removed = [self.work.next("user removed") for _ in range(3)]
        self.assertEqual([step.watch for step in added], ["user new0", "user new1"])
        self.assertEqual([step and step.watch for step in removed], ["gone new0", "gone new1", None])
        self.assertEqual((added[0].request[0], removed[0].request[0]), (0x68, 0x4A))

    def test_added_user_id_is_free(self):
        request = self.work.next("user added").request
        self.assertIn(b"100600", request)
        self.assertEqual(parsed(request)[2], len(request))

    def test_rounds_of_all_kinds_reach_a_hundred(self):
        for shape in sd.SIZES.values():
            for quick in (False, True):
                self.assertGreaterEqual(scale.rounds_of(shape, quick) * len(sd.KINDS), 100)
        self.assertEqual(scale.rounds_of(sd.SIZES["2k"], False, 7), 7)


class Percentiles(unittest.TestCase):
    def test_percentiles_of_a_hundred(self):
        found = scale.percentiles(range(100, 0, -1))
        self.assertEqual((found["p50"], found["p99"], found["max"], found["n"]), (50, 99, 100, 100))

    def test_percentiles_of_nothing(self):
        self.assertIsNone(scale.percentiles([]))


class Report(unittest.TestCase):
    METHOD = {"sampled_every_ms": 50, "state": "file system ext2/ext3", "limits_s": {"seen": 60}}

    def test_size_that_was_not_mirrored(self):
        sizes = {"2 × 1 × 1": {"roster": {"within_s": 900, "mirror": None}}}
        table, *_ = scale_report.tables({"scale": {"method": self.METHOD, "sizes": sizes, "limits": ["why"], "faults": []}})
        self.assertEqual(table.rows[0][1], "not within 900 s")
        self.assertEqual(len(table.rows[0]), len(table.header))
        self.assertIn("why", table.notes)

    def test_change_with_and_without_nslcd(self):
        load = {"load_average": [0.5, 0.75], "other_work_share": 0.031}
        seen = {"p50": 2e6, "p99": 3e6}
        series = {
            "seen_ns": seen, "cpu_s_per_change": 0.0123, "written_bytes_per_change": 4_000, "changes": 5, "unseen": 1,
            "cpu_s_per_change_by_role": {"backend": 0.01}, "written_bytes_per_change_by_role": {"backend": 4_000},
        } | load  # fmt: skip
        sizes = {
            "a": {"roster": {"kinds": {"gecos": series}}, "nslcd": {"kinds": {"gecos": {"seen_ns": seen} | load}}},
            "b": {"roster": {"kinds": {"gecos": series | {"seen_ns": None}}}},
        }
        _, table, _ = scale_report.tables({"scale": {"method": self.METHOD, "sizes": sizes, "limits": [], "faults": []}})
        row = ["a", "gecos", "2.0", "3.0", "12.3", "0.004", "4", "2.0", "3.0", "3 %", "0.5, 0.8"]
        self.assertEqual(table.rows[0], row)
        self.assertEqual(table.rows[1][2:6], ["not within 60 s", "–", "–", "–"])
        self.assertEqual(table.rows[1][7:9], ["–", "–"])
        self.assertEqual(len(table.header), len(row))


if __name__ == "__main__":
    unittest.main()
