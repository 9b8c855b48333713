"""Many runs: tables of them, runs over environments, settings and seeds, plots and comparisons."""


class StudyError(ValueError):
    """The request cannot be carried out; the message gives the reason and the remedy."""
