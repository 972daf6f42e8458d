"""One graph of all ranks' typical steps: what its time consists of, and what a change would bring."""
