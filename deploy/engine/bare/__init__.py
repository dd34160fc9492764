"""An engine for hosts that have none: its containers are processes of the login, and no daemon runs.

A host gets these modules as the program `docker` (reach.py). They need Python alone, and import nothing else of ours.
A run starts it a few dozen times on each host: what few commands need is imported where it is needed.
"""
