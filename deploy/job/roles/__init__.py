"""The roles of a run: what users write of each, and whether they fit together."""
