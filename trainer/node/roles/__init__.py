"""A run of several roles: what a node of one role knows of the others, when its program starts, is ready, and ends."""
