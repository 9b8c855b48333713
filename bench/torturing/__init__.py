"""Parts of `bench/torture.py`.

============  ======================================================================================================
`counted`     an environment that numbers its steps, and algorithms that write down which of them they learned from
`cartpole`    CartPole that numbers its steps, for runs that are to learn something meanwhile
`ledger`      what they write, and what is found wrong in it when a run is over
`plan`        which faults befall which run at which moments: drawn from a seed, before anything starts
`run`         one `penstock` command, such as `train` or `resume`: its processes, its progress, its end
`disk`        a disk that can be filled up, files that can be damaged, made unreadable, newer or hostile
`audit`       what the run's files and the ledger say when a life is over
`story`       plays a plan, and says what was not as it should be
`twins`       the same for serial runs, beside undisturbed ones that must come to the same
`commands`    the same for commands of several runs: `multirun`, `search` and `pbt`
`dashboards`  the same for a dashboard, beside a run that trains
============  ======================================================================================================
"""
