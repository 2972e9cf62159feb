"""Starting a workload, watching over it, and judging what it left behind."""
