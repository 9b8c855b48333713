"""Dashboard: pages that show runs while they train, served to this machine's browser."""


class DashboardError(ValueError):
    """The dashboard cannot be served as requested; the message gives the reason and the remedy."""
