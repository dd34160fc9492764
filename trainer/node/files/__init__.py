"""A script's files: how the hosts of a run exchange them, and where they are kept."""
