"""One module a part of the benchmark, each `measure(bench, …) -> dict` for the JSON."""
