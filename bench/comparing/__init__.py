"""Comparisons of Penstock with other libraries, by `throughput.py`, `ipc.py` and `replay.py`."""
