# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of `bench/run --against`, by name. Each names its own lines."""

from .changes import Changes
from .compiling import Compiling
from .exec import Exec
from .lab import Lab
from .login import LogIn
from .lookups import Lookups
from .mirror import Mirror
from .module import Module
from .nscd import Nscd
from .on_demand import OnDemand
from .programs import Programs
from .rootwrap import Rootwrap

PARTS = {
    part.name: part
    for part in (
        Lookups,
        Programs,
        Module,
        Compiling,
        Nscd,
        Rootwrap,
        Exec,
        Mirror,
        Changes,
        OnDemand,
        LogIn,
        Lab,
    )
}
