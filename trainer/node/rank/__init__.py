"""Watches a user's script from inside its ranks: steps, loss, where the time goes, and each thread's stack.

node/rank/site/sitecustomize.py loads this package into the rank's process, by its path and under another name, because
a script may have modules named `trainer` or `muster`. Standard library only; torch's modules are passed in when the
script imports them. Nothing in here may raise an exception into the script (hooks.py), change the script's numbers, or
wait for a GPU. watching.md describes what is watched and how.
"""
