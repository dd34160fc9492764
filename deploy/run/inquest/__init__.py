"""Decide which rank or node broke a run first, and why, from the records of the ranks and nodes."""
