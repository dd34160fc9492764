"""Which nodes train together: a register that a majority keeps, what nodes ask each other, who joins and who leaves."""
