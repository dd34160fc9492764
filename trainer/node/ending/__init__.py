"""How ranks ended, who failed first, and whether those who trained were the ranks at all."""
