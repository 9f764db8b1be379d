"""Training: frozen scoring, the weighted trainer, its checkpoints, and how processes are launched."""
