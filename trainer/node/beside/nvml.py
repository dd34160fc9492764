"""What NVIDIA's driver reports about each GPU, through its library NVML (nvml.h has the names and numbers).

`python -m muster.trainer.node nvml` prints the index and the used bytes of each GPU, by its UUID, as JSON.

The library comes with the driver, into a container with the driver capability `utility`. Standard library only:
decision 0036 says why not nvidia-ml-py.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
_TEMPERATURE_OF_GPU, _CLOCK_OF_SM, _CLOCK_OF_MEMORY = 0, 1, 2
# Why a GPU runs slower than it could, without the reasons `idle` and `clock set on purpose`.
_THROTTLED = {0x4: "power cap", 0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}


class NoGpus(Exception):
    """The driver's library is missing or does not work; the message says why."""


class _Use(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    """NVML's second version of this struct, which has a field `reserved`.

    In the first version, `used` includes what the driver reserves, up to a gigabyte.
    """

    _fields_ = (("version", c_uint), *((name, c_ulonglong) for name in ("total", "reserved", "free", "used")))


class _OldMemory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Nvml:
    """The GPUs of this machine. If a GPU or the driver is broken, any call may take seconds or kill the process."""

    def __init__(self) -> None:
        """Load the library. Raises NoGpus."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
            self._check(self._library.nvmlInit_v2())
            count = c_uint()
            self._check(self._library.nvmlDeviceGetCount_v2(byref(count)))
        except (OSError, AttributeError) as fault:
            raise NoGpus(f"{LIBRARY} cannot be loaded: the container needs the driver capability utility") from fault
        self._handles = {index: handle for index in range(count.value) if (handle := self._handle(index))}

    def identities(self) -> dict[int, tuple[str, str]]:
        """The name and the UUID of each GPU, by its index."""
        return {
            index: (self._text("nvmlDeviceGetName", handle), self._text("nvmlDeviceGetUUID", handle))
            for index, handle in self._handles.items()
        }

    def whole(self, uuid: str) -> str:
        """The UUID of the GPU to which a MIG part (`MIG-...`) belongs; empty if the driver does not know it."""
        part, gpu = c_void_p(), c_void_p()
        known = self._ask("nvmlDeviceGetHandleByUUID", uuid.encode(), byref(part)) and self._ask(
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part, byref(gpu)
        )
        return self._text("nvmlDeviceGetUUID", gpu) if known else ""

    def driver(self) -> str:
        """The driver's version; empty if it does not report one."""
        return self._text("nvmlSystemGetDriverVersion")

    def read(self, index: int) -> dict[str, Any]:
        """The GPU's current values, without those that it does not report."""
        handle, use = self._handles[index], _Use()
        memory: _Memory | _OldMemory = _Memory(ctypes.sizeof(_Memory) | 2 << 24)
        values: dict[str, Any] = {"index": index}
        if self._ask("nvmlDeviceGetUtilizationRates", handle, byref(use)):
            values["use_percent"] = use.gpu
        known = self._ask("nvmlDeviceGetMemoryInfo_v2", handle, byref(memory))
        if not known:  # a driver older than 510
            memory = _OldMemory()
            known = self._ask("nvmlDeviceGetMemoryInfo", handle, byref(memory))
        if known:
            values |= {"memory_bytes": memory.used, "memory_total_bytes": memory.total}
        watts = self._number("nvmlDeviceGetPowerUsage", handle)
        if watts is not None:
            values["power_w"] = round(watts / 1000, 1)
        for name, function, kind in (
            ("celsius", "nvmlDeviceGetTemperature", _TEMPERATURE_OF_GPU),
            ("sm_mhz", "nvmlDeviceGetClockInfo", _CLOCK_OF_SM),
            ("memory_mhz", "nvmlDeviceGetClockInfo", _CLOCK_OF_MEMORY),
        ):
            value = self._number(function, handle, c_int(kind))
            if value is not None:
                values[name] = value
        reasons = c_ulonglong()
        if self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle, byref(reasons)):
            values["throttled"] = [name for bit, name in _THROTTLED.items() if reasons.value & bit]
        return values

    def _handle(self, index: int) -> c_void_p | None:
        handle = c_void_p()
        return handle if self._ask("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)) else None

    def _number(self, name: str, *arguments: Any) -> int | None:
        value = c_uint()
        return value.value if self._ask(name, *arguments, byref(value)) else None

    def _text(self, name: str, *arguments: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        return text.value.decode(errors="replace") if self._ask(name, *arguments, text, c_uint(_TEXT_BYTES)) else ""

    def _ask(self, name: str, *arguments: Any) -> bool:
        """Call the function; whether it exists and succeeded."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def _check(self, code: int) -> None:
        if code:
            words = self._library.nvmlErrorString
            words.restype = ctypes.c_char_p
            raise NoGpus((words(code) or b"").decode(errors="replace") or f"NVML answers {code}")


if __name__ == "__main__":
    library = Nvml()
    uuids = {index: uuid for index, (_, uuid) in library.identities().items()}
    print(json.dumps({uuids[index]: [index, library.read(index).get("memory_bytes", 0)] for index in uuids}))
