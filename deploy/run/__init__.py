"""The life of one run on any backend: its folder, its environment, its events, its state and its outcome."""
