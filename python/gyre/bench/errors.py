"""What goes wrong in a benchmark, as opposed to in Gyre."""

from __future__ import annotations


class BenchError(Exception):
    """A program that was to be measured failed; the message has its last words."""


class UsageError(Exception):
    """The person asked for something that does not exist or cannot be; the message says what to do."""
