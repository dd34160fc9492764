"""Beside the agent: the machine's numbers, a script's files of numbers, health, the witness of the end, an overlay."""
