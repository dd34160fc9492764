"""Every figure that Muster claims, measured next to its rivals: `make bench` -> docs/evidence/benchmarks.md."""
