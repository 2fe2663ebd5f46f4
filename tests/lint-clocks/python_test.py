"""The lint for Python finds what it should, and nothing else."""

import pathlib
import tempfile
import unittest

import python as lint


def found(body):
    return [message for _, _, message in lint.findings(f"def test():\n    {body}\n")]


class Findings(unittest.TestCase):
    def test_clock_in_assertion_is_found(self):
        for body in (
            "assert time.monotonic() - begin < 8",
            "begin = time.monotonic(); assert now() - begin < 8",
            "took = time.perf_counter() - begin; ms = took * 1000; assert ms < 8",
            "until = time.time() + 8\n    while time.time() < until:\n        work()",
            "end = time.monotonic() + 8\n    if time.monotonic() > end:\n        raise SystemExit",
        ):
            self.assertNotEqual(found(body), [], body)

    def test_short_limit_is_found(self):
        for body in (
            "process.wait(20)",
            "process.communicate(timeout=20)",
            "stream.settimeout(0.5)",
            "eventually(holds, 'it', 20)",
            "subprocess.run(command, timeout=5)",
            "def eventually(holds, what, seconds=20): pass",
        ):
            self.assertNotEqual(found(body), [], body)

    def test_allowed_patterns_are_not_found(self):
        for body in (
            "begin = time.monotonic(); print(time.monotonic() - begin)",
            "process.wait(60)",
            "stream.settimeout(SOON)",
            "time.sleep(1)",
            "with pytest.raises(TimeoutExpired):\n        run(command, timeout=0.2)",
            "os.utime(path, (time.time() - 61,) * 2)",
        ):
            self.assertEqual(found(body), [], body)


class Exceptions(unittest.TestCase):
    def report(self, exceptions):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "python/tests").mkdir(parents=True)
            (root / "tests/lint-clocks").mkdir(parents=True)
            (root / "python/tests/test_it.py").write_text("def test():\n    process.wait(1)\n")
            (root / lint.EXCEPTIONS).write_text(exceptions)
            return lint.check(root)

    def test_excepted_finding_is_accepted(self):
        self.assertEqual(len(self.report("")), 1)
        self.assertEqual(self.report("python/tests/test_it.py: test: a reason\n"), [])

    def test_stale_exception_is_reported(self):
        report = self.report("python/tests/test_it.py: test: a reason\npython/tests/gone.py: test: a reason\n")
        self.assertIn("matches nothing", report[0])

    def test_exception_without_reason_is_rejected(self):
        with self.assertRaises(ValueError):
            self.report("python/tests/test_it.py: test:\n")


if __name__ == "__main__":
    unittest.main()
