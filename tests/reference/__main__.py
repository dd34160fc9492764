"""`python -m tests.reference` writes each page that is made from a table of the code."""

from .pages import MAKERS

if __name__ == "__main__":
    for page, make in MAKERS.items():
        page.write_text(make())
