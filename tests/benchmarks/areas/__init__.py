"""One module for each area that is measured."""
