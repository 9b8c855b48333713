"""Load of NVIDIA's GPUs, read through NVML where the extra "gpu" is installed."""

from __future__ import annotations

from typing import Any


class Gpus:
    """The GPUs of this machine; none where NVML is not there, or finds none.

    Attributes
    ----------
    names : list of str
        Of each; one that is divided (MIG) is marked.
    """

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._is_divided: list[bool] = []
        self.names: list[str] = []
        try:
            import pynvml
        except ImportError:
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._add(pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError:  # no driver, or none that talks to this container
            self._handles.clear()

    def _add(self, handle: Any) -> None:
        name = self._nvml.nvmlDeviceGetName(handle)
        try:
            is_divided = self._nvml.nvmlDeviceGetMigMode(handle)[0] == self._nvml.NVML_DEVICE_MIG_ENABLE
        except self._nvml.NVMLError:  # this kind cannot be divided
            is_divided = False
        self._handles.append(handle)
        self._is_divided.append(is_divided)
        self.names.append(f"{name} (MIG)" if is_divided else name)

    def sample(self) -> dict[str, float | None]:
        """Present load of each GPU, by name, over all programs.

        Returns
        -------
        dict
            ``gpu/0/busy`` (share of the time; None where NVML does not say, as of a divided GPU),
            ``gpu/0/memory_used`` and ``gpu/0/memory_limit`` (bytes), and so on.
        """
        found: dict[str, float | None] = {}
        for index, handle in enumerate(self._handles):
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                found |= {f"gpu/{index}/memory_used": memory.used, f"gpu/{index}/memory_limit": memory.total}
            except self._nvml.NVMLError:
                found |= {f"gpu/{index}/memory_used": None, f"gpu/{index}/memory_limit": None}
            found[f"gpu/{index}/busy"] = self._busy(index)
        return found

    def _busy(self, index: int) -> float | None:
        if self._is_divided[index]:
            return None
        try:
            return self._nvml.nvmlDeviceGetUtilizationRates(self._handles[index]).gpu / 100
        except self._nvml.NVMLError:
            return None
