"""A run of several roles: what a node of one knows of the others, and when its program starts, is ready, and ends."""
