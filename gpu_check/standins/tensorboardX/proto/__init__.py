"""As far as muster/metrics.py uses it."""
