"""The dashboard: pages that show runs while they train, served to this machine's browser."""


class DashboardError(ValueError):
    """It cannot be served as it was asked for; the message says why, and what to do."""
