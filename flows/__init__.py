"""What runs, in which order: Prefect flows, wiring only."""

from tokenweight.embedded import quiet

quiet()
