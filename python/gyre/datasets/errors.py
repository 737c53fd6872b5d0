"""Errors of the data set generators."""


class DatasetError(Exception):
    """The message is for the user."""
