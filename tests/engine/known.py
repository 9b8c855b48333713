"""Settings for several algorithms at once."""

from typing import Any

from penstock.engine.faces import Face


def known_to(face: type[Face], settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that an algorithm has."""
    return {name: value for name, value in settings.items() if name in face.algorithm.Config.__dataclass_fields__}
