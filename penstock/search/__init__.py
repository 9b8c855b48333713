"""Search for the settings that learn best: many trainings, each an ordinary run, and a sampler that learns from them.

====================  ===========================================================================================
`space`               searched settings and their bounds
`objective`           score of a training
`study`               sampling and pruning of trials: the only module that imports Optuna
`directory`           files of a search, which several processes may share
`job`                 running trial: its processes, on separate cores
`searching`           trials, up to the requested number
`report`              table of the best trials, and the command that trains with their settings
`arguments`           checks and defaults of the commands
`command`             ``penstock search``
`population`          runs that copy each other while they train
`population_command`  ``penstock pbt``
====================  ===========================================================================================

`penstock.bench.search` finds the *fastest* settings instead, without regard to returns.
"""
