"""How ranks ended, which one failed first, and whether the processes that trained were the ranks at all."""
