"""Errors of a benchmark, as opposed to errors of Gyre."""

from __future__ import annotations


class BenchError(Exception):
    """A measured program failed; the message has its last output."""


class UsageError(Exception):
    """The user asked for something that does not exist or is impossible; the message says what to do."""
