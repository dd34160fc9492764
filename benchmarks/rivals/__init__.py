"""The rivals' side of each comparison: programs as their own tutorials would write them, started by torchrun."""
