"""Finds the ranks that are stuck, and where; and decides which of them is ended, so that all ranks start again."""
