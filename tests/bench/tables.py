"""The tables that a bench prints."""


def table(out: str) -> list[list[str]]:
    """The cells of all lines of tables."""
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
