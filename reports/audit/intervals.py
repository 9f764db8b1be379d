"""Intervals of exact fractions: what a printed number may have been before it was rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tokenweight.reports.model import PaperNumber


@dataclass(frozen=True)
class Interval:
    """All values from `low` to `high`, both included; a rounded value may lie on either border."""

    low: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, value: Fraction | int | str) -> Interval:
        """One value."""
        return cls(Fraction(value), Fraction(value))

    @classmethod
    def printed(cls, text: str) -> Interval | None:
        """A number as printed: "0.20" is 0.195 to 0.205, "<0.01" is 0 to 0.01; None for what is no number."""
        if text.startswith("<"):
            return cls(Fraction(0), Fraction(text[1:]))
        try:
            value = Fraction(text)
        except ValueError:
            return None
        half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
        return cls(value - half, value + half)

    @property
    def middle(self) -> Fraction:
        """The printed number itself, where that is what the interval is of."""
        return (self.low + self.high) / 2

    def meets(self, other: Interval) -> bool:
        """Whether a value lies in both."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __truediv__(self, other: Interval) -> Interval:
        """ZeroDivisionError where the divisor may be 0."""
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor may be 0")
        return self * Interval(1 / other.high, 1 / other.low)

    def __abs__(self) -> Interval:
        low, high = sorted((abs(self.low), abs(self.high)))
        return Interval(Fraction(0) if self.low <= 0 <= self.high else low, high)


def weighted_sum(weights: Sequence[Fraction], terms: Sequence[Interval]) -> Interval:
    """Sum of weight times term; each term once, so that no interval is counted twice."""
    total = Interval.exactly(0)
    for weight, term in zip(weights, terms, strict=True):
        total += Interval.exactly(weight) * term
    return total


def interval_of(place: str, number: PaperNumber) -> Interval:
    """What a printed number may stand for; `counts` are exact. ValueError for what is no number."""
    interval = Interval.exactly(number.printed) if place.startswith("counts/") else Interval.printed(number.printed)
    if interval is None:
        raise ValueError(f"{place}: {number.printed!r} is no number")
    return interval
