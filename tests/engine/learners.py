"""The learners of a serial run, for tests that look at what they learn with."""


def learner_of(trainer, policy=0):
    """The learner of a policy, by the policy's number."""
    return trainer._supervisor.backend._roles["learner" if policy == 0 else f"learner-{policy}"]
