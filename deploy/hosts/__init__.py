"""The backend of real hosts: `fab deploy` and its family."""
