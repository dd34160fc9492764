"""Recipes that the checks train."""
