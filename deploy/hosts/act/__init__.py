"""Commands that change a run on its hosts, or what lies there of it."""
