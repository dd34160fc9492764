"""One node of a run: its plan, its ranks, what they print, how it stops. agent.py is the program, node.py its loop."""
