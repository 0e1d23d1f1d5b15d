"""Slow against what? Benchmark results of several tools as one record, a store of them, and how two compare."""
