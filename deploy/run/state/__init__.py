"""What a run's events show about its ranks, its nodes and its training; and the run's story."""
