"""Records distributed PyTorch training under its profiler, and shows where the time went."""
