# SPDX-License-Identifier: MIT OR Apache-2.0
"""Commands as root or another user, by the policy of this host: `subprocess.run` without a sudo each.

    import roster_exec
    roster_exec.run(["systemctl", "restart", "nginx"], check=True)

`run` has the arguments, the result and the exceptions of `subprocess.run`; `rootwrap.Client` takes the place of
`oslo_rootwrap.client.Client`. The kernel identifies the caller, and /etc/roster/exec.toml has the rules.
"""

from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, CompletedProcess, TimeoutExpired

from .errors import Busy, ExecError, Failed, NoDaemon, NotExecutable, NotFound, Refused
from .run_command import TIME_OVER, run

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "TIME_OVER",
    "Busy",
    "CalledProcessError",
    "CompletedProcess",
    "ExecError",
    "Failed",
    "NoDaemon",
    "NotExecutable",
    "NotFound",
    "Refused",
    "TimeoutExpired",
    "run",
]
