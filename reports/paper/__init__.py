"""The paper's own numbers, as printed. A test holds a second transcription against them."""
