"""The backend of real hosts: `muster deploy` and its family."""
