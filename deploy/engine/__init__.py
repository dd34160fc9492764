"""The only door to container engines, of this machine and of hosts."""
