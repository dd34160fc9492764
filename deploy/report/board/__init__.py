"""`muster board`: one local page for all runs of a folder, live where a run is live. server.py is its only door."""
