"""Fingerprints of tensors on a CUDA device: the kernel library, and results that come later."""
