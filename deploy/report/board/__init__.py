"""`muster board`: a local page for all runs in a folder, with live pages for live runs. server.py is its only door."""
