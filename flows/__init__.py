"""What runs, in which order: Prefect flows, wiring only."""
