"""The folder that the agent puts on PYTHONPATH because of its sitecustomize.py."""
