"""`python -m tokenweight` is the command."""

from tokenweight.cli import main

main()
