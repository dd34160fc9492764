"""Checkpoints: what is in one, how it is copied, written and found again."""
