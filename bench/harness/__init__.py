# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of `bench/run`: see there."""
