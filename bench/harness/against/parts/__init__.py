"""The parts of `bench/run --against`, by name. Each names its own lines."""

from .compiling import Compiling
from .exec import Exec
from .lookups import Lookups
from .module import Module
from .nscd import Nscd
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
    )
}
