"""Self-play: opponents that act and are not learned from, in training and in evaluations.

Other rooms use one module each: `settings` checks a config, `games` are environments with lanes of opponents, `pool` is
shared memory, `path` and `inference` act, `versions` serve the supervisor, and `matches` are evaluations.
"""
