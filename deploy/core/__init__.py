"""Errors with a hint and an exit code, one result per host, names and numbers. No input or output."""
