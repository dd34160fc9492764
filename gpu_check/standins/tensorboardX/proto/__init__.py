"""The part of this package that muster/metrics.py uses."""
