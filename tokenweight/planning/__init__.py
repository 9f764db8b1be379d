"""From recipes to artifacts: the graph, the plan with its reasons, requirements and costs. Loads no torch."""
