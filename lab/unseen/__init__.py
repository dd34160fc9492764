"""Faults that no rule was written for, and harmless oddities, as rented machines have them: on hosts of a rack.

They are outside of what lab/drawn composes. Each row was written, with what is right to say of it, before anybody
tried it. A draw by SEED keeps a third for the score; the others are for looking at.
"""
