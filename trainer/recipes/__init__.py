"""The built-in recipes, written as a user would write them. `trainer.recipe` loads them by name."""
