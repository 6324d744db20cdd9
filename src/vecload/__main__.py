"""`python -m vecload`: the command line, where its script is not on the path."""

from vecload.cli import main

main(prog_name="vecload")
