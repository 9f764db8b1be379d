"""RULER (Hsieh et al., 2024): its 13 tasks at any length, by our own generator (Section 4, Appendix C)."""
