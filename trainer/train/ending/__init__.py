"""How a rank ends that cannot go on: its state is saved, its stacks are noted, a stuck one is ended."""
