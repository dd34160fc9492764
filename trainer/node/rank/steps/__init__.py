"""Observes a rank's steps: when each happens, how long it takes, its loss, and the wait for other ranks."""
