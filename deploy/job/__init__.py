"""What a user may ask of a run: the table of options, and what is made of it."""
