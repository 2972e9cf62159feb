"""Functions of numbers alone."""


def normalise(scores, width):
    """Scores with a variance of about one."""
    root = width**0.5
    return scores / root
