# SPDX-License-Identifier: MIT OR Apache-2.0
"""Additional work of a Locust master. It sends the user classes to workers, runs pre-run checks, and receives the
workers' data beyond Locust's figures."""

import argparse
import json
import logging
import os
import shutil
from typing import Any, Dict, List, Optional, Tuple

import gevent
from gevent import subprocess
from locust import events
from locust.runners import STATE_INIT, STATE_STOPPED, MasterRunner
from locust.stats import StatsCSV

from . import page
from .users import NativeUser

log = logging.getLogger(__name__)

#: The file with user classes for the workers of `roster-lab locust`. Other clients of the master cannot read the
#: classes then.
CLASSES = "ROSTER_LAB_CLASSES"
#: A comparison of each class takes a few seconds.
CHECK_SECONDS_MAX = 120


class Lab:
    """Data beside Locust's own figures."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        #: For each class: the comparisons before the run, and their warnings.
        self.checks: Dict[str, Dict[str, Any]] = {}
        #: The latest report of each worker.
        self.workers: Dict[str, Dict[str, Any]] = {}
        #: Their reports when the statistics were reset.
        self.workers_at_reset: Dict[str, Dict[str, Any]] = {}
        self._checking: Optional[gevent.Greenlet] = None
        #: The options of the latest check, until a run has followed it.
        self._checked: Optional[Dict[str, Any]] = None

    def classes(self) -> List[Any]:
        return [cls for cls in self.environment.user_classes if issubclass(cls, NativeUser)]

    def tell_workers(self) -> None:
        """Passes the user classes to workers: among the options, or in a file."""
        told = {}
        for cls in self.classes():
            options = {key: value for key, value in cls.options().items() if key != "probe"}
            told[cls.__name__] = {cls.load: options}
        path = os.environ.get(CLASSES)
        if path:
            with open(path + ".new", "w") as file:
                json.dump(told, file)
            os.replace(path + ".new", path)
            return
        if self.environment.parsed_options is None:
            self.environment.parsed_options = argparse.Namespace()
        self.environment.parsed_options.roster_lab = told

    def is_idle(self) -> bool:
        is_checking = self._checking is not None and not self._checking.ready()
        return not is_checking and self.environment.runner.state in (STATE_INIT, STATE_STOPPED)

    def start_check(self) -> None:
        """Starts the pre-run checks, unless something runs that would disturb them."""
        if self.is_idle():
            self._checking = gevent.spawn(self._check)

    def on_test_start(self, **_: Any) -> None:
        self.workers.clear()
        self.workers_at_reset.clear()
        self.tell_workers()
        # The checks need a server without other load.
        if self._checking is not None:
            self._checking.join()
        if self._checked != self._options():
            # The check was of another server, or of an earlier run.
            self._checking = gevent.spawn(self._check)
            self._checking.join()
        self._checked = None

    def on_reset(self) -> None:
        """From now on requests are counted from zero, and so is their cost."""
        self.workers_at_reset = dict(self.workers)

    def _options(self) -> Dict[str, Any]:
        return {cls.__name__: cls.options() for cls in self.classes()}

    def on_report(self, client_id: str, data: Dict[str, Any], **_: Any) -> None:
        if "roster_lab" in data:
            self.workers[client_id] = data["roster_lab"]

    def _check(self) -> None:
        checked = self._options()
        self.checks = {cls.__name__: check(cls) for cls in self.classes()}
        self._checked = checked
        for name, found in self.checks.items():
            for warning in found.get("warnings", ()):
                log.warning("%s: %s [%s]", name, warning["text"], warning["code"])

    def warnings(self) -> List[Dict[str, str]]:
        """Warnings of the comparisons, and of all workers, each kind once."""
        found: Dict[Tuple[str, str], Dict[str, str]] = {}
        for name, one in self.checks.items():
            if "failed" in one:
                # The text is a message of roster-lab, which ends with its code.
                found[name, "not checked"] = {"text": one["failed"]}
            for warning in one.get("warnings", ()):
                found[name, warning["kind"]] = {"text": warning["text"], "code": warning["code"]}
        for worker in self.workers.values():
            for name, kind, text, code in worker["warnings"]:
                found.setdefault((name, kind), {"text": text, "code": code})
        return [dict(one, name=name, kind=kind) for (name, kind), one in found.items()]

    def server_cpu_us(self) -> Dict[str, float]:
        """Microseconds of the server's processor for each request of a class.

        Several workers beside one server see the same process: of a host the most counts.
        """
        seconds: Dict[Tuple[str, str, str], float] = {}
        for client, worker in self.workers.items():
            before = {(name, what): cpu for name, what, cpu in self._at_reset(client).get("server_cpu", ())}
            for name, what, cpu in worker["server_cpu"]:
                key = (name, worker["host"], what)
                seconds[key] = max(seconds.get(key, 0.0), cpu - before.get((name, what), 0.0))
        requests = {}
        for (name, _), entry in list(self.environment.stats.entries.items()):
            requests[name] = requests.get(name, 0) + entry.num_requests
        sums: Dict[str, float] = {}
        for (name, _, _), cpu in seconds.items():
            sums[name] = sums.get(name, 0.0) + cpu
        return {name: cpu * 1e6 / requests[name] for name, cpu in sums.items() if requests.get(name)}

    def client_cpu_us(self) -> Optional[float]:
        """Microseconds of the workers' processors for each request."""
        requests = self.environment.stats.total.num_requests
        cpu = sum(
            worker["client_cpu"] - self._at_reset(client).get("client_cpu", 0.0)
            for client, worker in self.workers.items()
        )
        return cpu * 1e6 / requests if requests and self.workers else None

    def _at_reset(self, client: str) -> Dict[str, Any]:
        return self.workers_at_reset.get(client, {})


def plan(cls: Any) -> str:
    """The requests of a user class as a plan of roster-lab: strings, lists and numbers of JSON are valid TOML, too."""
    lines = ["%s = %s" % (key, json.dumps(value, ensure_ascii=False)) for key, value in cls.options().items()]
    return "\n".join(["[%s]" % cls.load, *lines, ""])


def check(cls: Any) -> Dict[str, Any]:
    """The findings of `roster-lab check` on a class of users."""
    if str(cls.options().get("probe", "")) == "0":
        return {}
    program = os.environ.get("ROSTER_LAB") or shutil.which("roster-lab")
    if program is None:
        return {"failed": "roster-lab is not installed on this host. Install it. [RST-8192]"}
    # Not as arguments, which every user of this host sees: passwords may be among them.
    command = [program, "run", "/dev/stdin", "--check", "--json=-", "--quiet"]
    try:
        done = subprocess.run(
            command,
            input=plan(cls).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=CHECK_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        text = "the pre-run checks took longer than %d s. Lower probe, or set it to 0. [RST-8193]"
        return {"failed": text % CHECK_SECONDS_MAX}
    try:
        found: Dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        # Errors of roster-lab have their own codes.
        told = done.stderr.decode(errors="replace").strip()[-1000:]
        return {"failed": told or "roster-lab check ended without a report. Run it with the same options. [RST-8194]"}
    return found


def _with_fractions(self: Any, entry: Any, use_current: bool = False) -> List[Any]:
    """Locust truncates times in its CSV to whole milliseconds; roster-lab's have three digits."""
    if not entry.num_requests:
        return list(self.percentiles_na)
    if use_current and entry.use_response_times_cache:
        percentile = entry.get_current_response_time_percentile
    else:
        percentile = entry.get_response_time_percentile
    return [percentile(share) or 0 for share in self.percentiles_to_report]


def listen() -> None:
    """To be called once, when a locustfile names one of our classes."""

    @events.init.add_listener
    def on_init(environment: Any, web_ui: Any = None, **_: Any) -> None:
        if not isinstance(environment.runner, MasterRunner):
            return
        lab = Lab(environment)
        lab.tell_workers()
        StatsCSV._percentile_fields = _with_fractions
        environment.events.test_start.add_listener(lab.on_test_start)
        environment.events.worker_report.add_listener(lab.on_report)
        # Locust's event covers only the page's button.
        reset_all = environment.stats.reset_all

        def reset() -> None:
            reset_all()
            lab.on_reset()

        environment.stats.reset_all = reset
        if web_ui is not None:
            page.add(web_ui, lab)
            lab.start_check()

