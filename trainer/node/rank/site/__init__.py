"""Put on PYTHONPATH by the agent, for its sitecustomize.py."""
