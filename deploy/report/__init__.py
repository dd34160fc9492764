"""Everything that a person reads: the terminal, text, tables and HTML pages."""
