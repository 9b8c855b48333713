"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846): decisions about copies and settings.

Pure and seeded: the engine carries decisions out within a run, `penstock pbt` over several runs.
"""
