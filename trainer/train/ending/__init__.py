"""How a rank that cannot continue ends: it saves its state and notes its stacks; a stuck rank is ended."""
