"""The roles of a run: what users write about each role, and whether the roles fit together."""
