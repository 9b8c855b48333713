"""Parts of `bench/torture.py`.

============  ======================================================================================================
`counted`     an environment that numbers its steps, and algorithms that record the steps they learned from
`cartpole`    CartPole that numbers its steps, for runs that also have to learn something
`ledger`      the records of these algorithms, and the errors in them when a run is over
`plan`        the faults of each run and their times, drawn from a seed before anything starts
`run`         one `penstock` command, such as `train` or `resume`: its processes, its progress, its end
`disk`        a disk that can be filled up, files that can be damaged, made unreadable, newer or hostile
`audit`       comparison of the run's files with the ledger when a life is over
`story`       player of a plan, which records violations
`twins`       the same for serial runs, compared with undisturbed runs that must have the same results
`commands`    the same for commands of several runs: `multirun`, `search` and `pbt`
`dashboards`  the same for a dashboard and a run that trains
============  ======================================================================================================
"""
