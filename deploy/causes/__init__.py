"""Why a run does not start, or has ended: one table of causes, and what is read by it. Pure."""
