"""A substitute for hosts without a container engine: its containers are processes of the login; no daemon runs.

A host gets these modules as the program `docker` (install_bare.py). They need only Python, and import no other Muster
code. A run starts the program a few dozen times on each host, so modules that few commands need are imported only
there.
"""
