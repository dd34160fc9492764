"""The files of a run on a host, and how they are copied to this machine."""
