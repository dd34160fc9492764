"""The rows of the table of causes, by theme: nobody reads them from end to end, one looks up a row."""
