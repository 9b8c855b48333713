"""Many runs: tables of them, runs over environments, settings and seeds, plots and comparisons."""


class StudyError(ValueError):
    """What was asked for cannot be done; the message says why, and what to do."""
