"""The only door to SSH."""
