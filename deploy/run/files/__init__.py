"""A run folder on this machine: its record, its code, its locks, and which one a command means."""
