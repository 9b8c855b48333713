"""Reports, kept in order."""

from typing import Any


class Reports(list[Any]):
    """Reports of a role, which gets `append` as its callback."""

    def of(self, kind: type) -> list[Any]:
        """Those of one kind."""
        return [report for report in self if isinstance(report, kind)]
