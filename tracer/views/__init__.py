"""Each view takes a Report (or a Run) and renders it; none computes."""
