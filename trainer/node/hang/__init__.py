"""Which ranks are stuck, where, and which of them is ended so that all start again."""
