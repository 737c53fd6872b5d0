"""What the generators of data sets report."""


class DatasetError(Exception):
    """What went wrong, for the person who called."""
