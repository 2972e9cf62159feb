"""Version of the opguard-tools distribution."""

__version__ = "0.1.0"
