"""A script's files between the hosts of its run."""
