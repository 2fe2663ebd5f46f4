# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lint for Python has the expected findings, and no others."""

import pathlib
import tempfile
import unittest

import python as lint

REJECTED = """
assert time.monotonic() - begin < 8
self.assertLess(time.monotonic() - t, 1)
from time import monotonic
import time as t; t.monotonic()
import time as t; t.time()
clock = time.perf_counter_ns
datetime.datetime.now()
asyncio.get_running_loop().time()
process.wait(20)
process.communicate(timeout=20)
stream.settimeout(0.5)
thread.join(2)
thread.join(timeout=2)
q.get(timeout=2)
q.get(timeout=later)
q.get(timeout=2 * SHORT)
select.select([stream], [], [], 1)
subprocess.run(command, timeout=5)
subprocess.run(command, **{"timeout": 5})
subprocess.run(["timeout", "-k", "1", "5", "true"])
subprocess.run("cd /; timeout 5 true", shell=True)
eventually(holds, 'it', 20)
eventually(holds, 'it', within=20)
def other(holds, within=20): pass
async def other(): await asyncio.wait_for(answer, 5)
async def other(): time.monotonic()
with pytest.raises(CalledProcessError): run(command, timeout=0.2)
"""

ACCEPTED = """
process.wait(60)
stream.settimeout(SOON)
stream.settimeout(None)
stream.settimeout(0)
q.get(timeout=2 * SOON)
time.sleep(1)
", ".join(names)
os.path.join(folder, name)
from time import sleep
datetime.timedelta(seconds=5)
eventually(holds, 'it')
eventually(holds, 'it', 60)
def other(holds, timeout=SOON): eventually(holds, 'it', timeout)
with pytest.raises(TimeoutExpired): run(command, timeout=0.2)
with self.assertRaises(socket.timeout): stream.settimeout(0.2)
subprocess.run(["timeout", "60", "true"])
"""


def found(line):
    text = f"SOON = 60\nSHORT = 5\ndef eventually(holds, what, within=60): pass\ndef test():\n    {line}\n"
    return [message for _, _, _, message, _ in lint.findings({"it.py": text})]


class Findings(unittest.TestCase):
    def test_dependence_on_clock_is_rejected(self):
        for line in REJECTED.strip().splitlines():
            self.assertEqual(len(found(line)), 1, line)

    def test_other_lines_are_accepted(self):
        for line in ACCEPTED.strip().splitlines():
            self.assertEqual(found(line), [], line)


class Exceptions(unittest.TestCase):
    EXCEPTED = "scripts/tests/test_it.py: test: `process.wait(1)`: a reason\n"

    def report(self, exceptions, times=1):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "scripts/tests").mkdir(parents=True)
            (root / "tests/lint-clocks").mkdir(parents=True)
            (root / "scripts/tests/test_it.py").write_text("def test():\n" + times * "    process.wait(1)\n")
            (root / lint.EXCEPTIONS).write_text(exceptions)
            return lint.check(root)

    def test_exception_accepts_one_finding(self):
        self.assertEqual(len(self.report("")), 1)
        self.assertEqual(self.report(self.EXCEPTED), [])
        self.assertEqual(len(self.report(self.EXCEPTED, times=2)), 1)
        self.assertEqual(self.report(2 * self.EXCEPTED, times=2), [])

    def test_stale_exception_is_reported(self):
        report = self.report(self.EXCEPTED + self.EXCEPTED.replace("_it", "_gone"))
        self.assertIn("matches nothing", report[0])

    def test_exception_without_reason_is_rejected(self):
        with self.assertRaises(ValueError):
            self.report(self.EXCEPTED.replace("a reason", ""))


if __name__ == "__main__":
    unittest.main()
