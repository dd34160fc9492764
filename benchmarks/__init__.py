"""Every figure that Muster claims, measured beside its rivals: `make bench` -> docs/evidence/benchmarks.md."""
