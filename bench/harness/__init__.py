"""The parts of `bench/run`: see there."""
