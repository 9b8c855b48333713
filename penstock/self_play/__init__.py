"""Self-play: opponents that act but are not learned from, in training and in evaluations.

Each module extends another part of a run: `settings` the config, `games` the environments, `arenas` the shared memory,
`matchmaking` the rollout worker, `path` and `inference` the choice of actions, `versions` the supervisor, and `matches`
the evaluations.
"""
