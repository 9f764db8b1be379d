"""`tokenweight inspect`: every token of a text with its long NLL, short NLL and weight, as the paper's Table 1 shows."""
