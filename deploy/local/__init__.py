"""The backends of this machine: processes and compose."""
