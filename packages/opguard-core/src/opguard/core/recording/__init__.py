"""Recording of calls: slots, fingerprints, state, gradients and random streams."""
