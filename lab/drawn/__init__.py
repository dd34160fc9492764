"""Faults that nobody chose: combinations of a primitive and a place, one to three at a time, drawn with a seed.

part.py defines what a part is, the modules next to it contain the parts, draw.py draws, trial.py breaks a laboratory
accordingly and runs real torchrun and preflight, score.py marks the answer. The right answer is fixed here, before
anything is run.
"""
