"""The paper's own numbers, as printed. Transcribed twice, by row and by column; a test compares the two."""
