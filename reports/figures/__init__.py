"""The figures: each a pure function of a report or of records; matplotlib is loaded only where one is drawn."""
