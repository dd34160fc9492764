"""Scripts as users bring them: none knows of Muster. Each notes what it knows of its own training (own.py)."""
