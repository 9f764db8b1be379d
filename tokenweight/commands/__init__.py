"""The commands of `tokenweight` that stand in files of their own."""
