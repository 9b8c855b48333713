"""The search for settings that learn best: many trainings, each an ordinary run, and a sampler that learns from them.

====================  ===========================================================================================
`space`               which settings are searched, and within which bounds
`objective`           what a training is worth
`study`               what is tried next, and whether a trial is given up: the only module that imports Optuna
`directory`           the files of a search, which several processes may share
`job`                 a trial under way: its processes, on cores of their own
`searching`           trials by turns until there are as many as wanted
`report`              the table of the best, and the command that trains with them
`command`             ``penstock search``
`population`          runs that copy each other while they train
`population_command`  ``penstock pbt``
====================  ===========================================================================================

`penstock.bench.search` looks for settings that are *fast*; nothing is learned from its trainings.
"""
