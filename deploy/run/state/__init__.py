"""What the events of a run say: of its ranks, of its nodes, of its training; and the story that is told of it."""
