"""Makes docs/reference/ from the tables of the code.

python -m tests.reference      writes the pages; tests/unit/test_reference.py reports one that is out of date
"""
