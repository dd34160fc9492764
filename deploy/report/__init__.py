"""Everything that a person reads: terminal output, text, tables and HTML pages."""
