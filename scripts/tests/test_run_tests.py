# SPDX-License-Identifier: MIT OR Apache-2.0
"""scripts/run-tests: the counts of the report, and the kinds of failures."""

import contextlib
import io
import pathlib
import unittest

from loading import load

run_tests = load("run-tests")

RUST = """
running 3 tests
test area::one ... ok
test area::two ... ignored, runs as another user, by area::one
test three ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
DOCUMENTATION = """
test crates/x/src/lib.rs - f (line 3) ... ok
test crates/x/src/lib.rs - g (line 9) ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out
"""
PYTHON = "Ran 7 tests in 1.5s\n\nFAILED (failures=1, errors=1, skipped=2, expected failures=1)\n"


def done(output, failure="", seconds=1.0):
    job = run_tests.Job("some.rs", ["some"], pathlib.Path("."))
    return run_tests.Done(job, output, failure, seconds, 0.5)


def report(*results):
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        status = run_tests.report(list(results), 1, 2, None)
    return status, written.getvalue()


class Report(unittest.TestCase):
    def test_counts_sum_rust_and_python(self):
        self.assertEqual(run_tests.counted(RUST), [1, 1, 1])
        self.assertEqual(run_tests.counted(RUST + DOCUMENTATION), [2, 1, 2])
        self.assertEqual(run_tests.counted(PYTHON), [3, 2, 2])
        self.assertEqual(run_tests.counted("nothing"), [0, 0, 0])

    def test_last_line_states_counts(self):
        status, text = report(done("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured"))
        self.assertEqual(status, 0)
        self.assertEqual(text.splitlines()[-1], "tests: 5 passed, 0 failed, 0 skipped")

    def test_ignored_test_is_listed_with_reason(self):
        status, text = report(done(RUST, "three"))
        self.assertEqual(status, 1)
        self.assertIn("ignored: some.rs: area::two: runs as another user, by area::one\n", text)
        self.assertIn("failed: some.rs: three\n", text)

    def test_ignored_test_without_reason_fails(self):
        status, text = report(done(DOCUMENTATION))
        self.assertEqual(status, 1)
        self.assertIn("is ignored without a reason", text)

    def test_empty_run_fails(self):
        status, text = report(done("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured"))
        self.assertEqual(status, 1)
        self.assertIn("failed: no test ran\n", text)

    def test_executable_without_result_fails(self):
        self.assertEqual(run_tests.failure_of(0, "running 3 tests\n"), "ended without a result")
        self.assertEqual(run_tests.failure_of(0, "Ran 0 tests in 0.000s\n\nOK\n"), "no test ran")
        self.assertEqual(run_tests.failure_of(134, RUST), "three")
        self.assertEqual(run_tests.failure_of(134, ""), "exit status 134")
        self.assertEqual(run_tests.failure_of(0, DOCUMENTATION), "")

    def test_dead_executable_counts_as_failed(self):
        fine = done("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured")
        status, text = report(fine, done("running 3 tests\n", "exit status 134"))
        self.assertEqual(status, 1)
        self.assertEqual(text.splitlines()[-1], "tests: 5 passed, 1 failed, 0 skipped")

    def test_no_executable_fails(self):
        status, text = report()
        self.assertEqual(status, 1)
        self.assertIn("failed: no test ran\n", text)

    def test_skipped_python_test_is_listed(self):
        skipped = "test_x (test_y.Z.test_x) ... skipped 'needs root'\n\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n"
        status, text = report(done(skipped))
        self.assertEqual(status, 0)
        self.assertIn("ignored: some.rs: test_x: 'needs root'\n", text)
        self.assertEqual(text.splitlines()[-1], "tests: 1 passed, 0 failed, 1 skipped")

    def test_slowest_start_first(self):
        slow = run_tests.SLOWEST.read_text().split()
        jobs = [run_tests.Job(name, [name], pathlib.Path(".")) for name in ["a.rs", *reversed(slow)]]
        self.assertEqual([job.name for job in run_tests.slowest_first(jobs)], [*slow, "a.rs"])

    def test_slow_tests_exist(self):
        missing = [name for name in run_tests.SLOWEST.read_text().split() if not (run_tests.TREE / name).exists()]
        self.assertEqual(missing, [])

    def test_hanging_executable_is_ended(self):
        job = run_tests.Job("hangs", ["sleep", "86397"], pathlib.Path("."))
        ended = run_tests.run(job, 0.5)
        self.assertEqual(ended.failure, "still running after 0.5 s")


if __name__ == "__main__":
    unittest.main()
