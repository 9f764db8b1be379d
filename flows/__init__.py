"""What runs, in which order: Prefect flows, wiring only."""

from tokenweight.embedded import quiet
from tokenweight.flows.console import one_line_errors

quiet()
one_line_errors()
