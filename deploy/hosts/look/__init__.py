"""Commands that read a run on its hosts and change nothing there."""
