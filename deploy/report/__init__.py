"""Everything that a person reads: the terminal, texts, tables and pages."""
