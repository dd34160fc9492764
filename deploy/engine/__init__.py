"""The only door to the local Docker engine."""
