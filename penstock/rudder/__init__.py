"""RUDDER: delayed rewards are redistributed to the steps that earned them (arXiv:1806.07857).

The rest of Penstock uses the room by the hooks in `settings`, and is free of it otherwise.
"""

import penstock.config  # noqa: F401 (first: the settings of the room are a part of it)
