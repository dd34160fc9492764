"""Errors with a hint and an exit code, one result for each host, names and numbers. No input or output."""
