# SPDX-License-Identifier: MIT OR Apache-2.0
"""`roster compile` of a small corpus into a snapshot."""

from ...corpus import Shape
from ...mount_namespace import MEASURED_CPU, Launcher

SHAPE = Shape("compile", 2_000, 2_000, 100, "consecutive")


class Compiling:
    name = "compile"
    programs, modules, helpers = ("roster",), (), ("spawn",)
    load = {"corpora": str(SHAPE), "clients": "1 program at a time", "rate": "closed loop"}

    def __init__(self, run):
        self.corpus = run.corpus(SHAPE)

    def block(self, sides, series):
        text = ["--passwd", self.corpus.passwd, "--group", self.corpus.group]
        argv = {
            name: [side.tools / "roster", "compile", *text, "--output", side.place / "compiled.snap"]
            for name, side in sides.items()
        }
        spawn = next(iter(sides.values())).tools / "spawn"
        with Launcher(["taskset", "-c", MEASURED_CPU, spawn]) as launcher:

            def once(name, field):
                ran = launcher.run(argv[name])
                if ran["status"] != 0:
                    raise RuntimeError(f"{argv[name][0]} compile failed with status {ran['status']}")
                return ran[field]

            # The wall time has the wait for the disk in it, the processor time has not.
            for line, field, ns in (("roster compile, wall", "ns", 1), ("roster compile, processor", "cpu_us", 1000)):
                calls = {name: lambda name=name: once(name, field) * ns for name in sides}
                series.take(line, calls)
