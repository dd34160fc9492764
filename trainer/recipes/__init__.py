"""The built-in recipes, each written as a user would write it; `trainer.recipe` loads them by name."""
