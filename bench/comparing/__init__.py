"""Comparisons of Penstock with other libraries: what `throughput.py`, `ipc.py` and `replay.py` share."""
