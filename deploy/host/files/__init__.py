"""The files of a run on a host, and how they come home."""
