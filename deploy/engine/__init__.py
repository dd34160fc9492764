"""The only way to container engines, on this machine and on hosts."""
