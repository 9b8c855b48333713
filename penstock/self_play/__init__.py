"""Self-play: opponents that act and are not learned from, in training and in evaluations.

Each module extends another room: `settings` the config, `games` the environments, `arenas` what roles share,
`matchmaking` the rollout worker, `path` and `inference` the choice of actions, `versions` the supervisor, and `matches`
the evaluations.
"""
