"""Commands that change a run on its hosts, or the files that it has there."""
