"""The commands of `tokenweight`, one file for each group. Imports what is heavy inside them: `--help` answers at once."""
