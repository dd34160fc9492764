"""Scripts that write their numbers with a framework's own logger, for `python -m benchmarks.scalars_truth`."""
