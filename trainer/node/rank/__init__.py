"""What is seen of a user's script from inside its ranks: steps, loss, where the time goes, and each thread's stack.

Loaded into the rank's process by node/rank/site/sitecustomize.py, by its place and under another name: a script may
have modules named `trainer` or `muster`. Standard library only; torch's modules are handed in as the script imports
them. Nothing in here may raise into the script (hooks.py), change a number of it, or wait for a GPU. watching.md
says what is seen and how.
"""
