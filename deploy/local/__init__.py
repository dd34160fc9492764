"""The backends of this machine: local processes, and Docker compose services."""
