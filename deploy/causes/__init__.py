"""Why a run does not start, or has ended: the one table of causes, and readers of error texts that use it. Pure."""
