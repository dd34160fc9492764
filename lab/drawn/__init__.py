"""Faults that nobody chose: primitives x places, one to three at a time, drawn at random with a seed.

part.py says what a part is, the modules beside it have the parts, draw.py draws, trial.py breaks a laboratory so and
asks real torchrun and preflight, score.py marks the answer. What is right to say is fixed here, before anybody asks.
"""
