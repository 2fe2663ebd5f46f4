# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scripts as modules, for their tests."""

import importlib.machinery
import importlib.util
import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
# Tests leave no __pycache__ beside the scripts.
sys.dont_write_bytecode = True


def load(name):
    """The script of that name, which has no suffix."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
