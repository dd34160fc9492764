"""Every figure that Muster claims, measured beside its rivals in the same run: `make bench` -> docs/benchmarks.md."""
