"""The HTML pages: one of a run, one of a preflight."""
