"""The checks, a file for each: a check gets answers and yields findings. Pure."""
