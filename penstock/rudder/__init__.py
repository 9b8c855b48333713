"""RUDDER: redistribution of delayed rewards to the steps that earned them (arXiv:1806.07857).

Lanes write steps into a feed (`feed`). A role (`redistributor`) joins them to episodes, trains a predictor of returns
(`predictor`, `learning`), and publishes it. Rewards are redistributed by the newest predictor (`redistribution`, by the
equations of `arithmetic`) before a learner reads them.

The rest of Penstock uses only the hooks in `settings`.
"""

import penstock.config  # noqa: F401 (first: the settings of the room are a part of it)
