"""What is reported, kept in order."""

from typing import Any


class Reports(list[Any]):
    """Whoever reports is given its `append`."""

    def of(self, kind: type) -> list[Any]:
        """Those of one kind."""
        return [report for report in self if isinstance(report, kind)]
