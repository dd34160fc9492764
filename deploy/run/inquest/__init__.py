"""Who broke a run first, and why: decided from the records of its ranks and nodes."""
