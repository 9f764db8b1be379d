"""Experiments of one's own as YAML (docs/experiments.md), and weights in any trainer."""
