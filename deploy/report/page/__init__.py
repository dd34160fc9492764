"""The HTML pages: one for a run, one for a preflight."""
