"""Automation protocol: models, envelope, errors and the reading of requests."""
