# SPDX-License-Identifier: MIT OR Apache-2.0
"""One module a part of the benchmark, each `measure(bench, …) -> dict` for the JSON."""
