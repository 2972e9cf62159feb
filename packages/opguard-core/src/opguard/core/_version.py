"""Version of the opguard-core distribution."""

__version__ = "0.1.0"
