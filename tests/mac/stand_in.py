"""Makes this Python look like one on macOS, as far as Linux can show it. Each Python of the Mac runs it at its start.

names.json is next to this file: it lists what only Linux has (linux_only.py). No other Muster module may be imported.
"""

import ctypes
import importlib
import importlib.machinery
import json
import os
import platform
import selectors
import sys
import sysconfig
import types
from contextlib import suppress

# Their Linux builds are installed here, so they are loaded as on Linux.
_LINUX_PACKAGES = ("torch", "psutil")
_HIDDEN = ("/dev/shm",)
_NOT_IN_LIBC = ("prctl", "on_exit", "memfd_create", "unshare", "setns", "gnu_get_libc_version", "syncfs")
_LONGEST_SOCKET = 103
_VERSION = "Darwin Kernel Version 23.6.0: stand-in"


class _AsOnLinux:
    """Loads a package that checks for the system it was built for, while this Python looks like Linux."""

    def find_spec(self, name, path=None, target=None):
        if name not in _LINUX_PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        _set_platform("linux")
        try:
            self._loader.exec_module(module)
        finally:
            _set_platform("darwin")
        if module.__name__ == "psutil":
            module.PROCFS_PATH = os.environ.get("MAC_PROCESSES", "/proc")


def _set_platform(system):
    sys.platform = system
    platform.system = {"linux": lambda: "Linux", "darwin": lambda: "Darwin"}[system]
    for module, names in _LINUX_ONLY:
        if system == "linux":
            vars(module).update(names)
        for name in names if system == "darwin" else ():
            vars(module).pop(name, None)


def _refuse(event, arguments):
    """Refuse what the macOS kernel would refuse, at the audit events that Python raises before the call."""
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes, os.PathLike)):
        if os.fsdecode(arguments[0]).startswith(_HIDDEN):
            raise FileNotFoundError(2, "No such file or directory", arguments[0])
    elif event in ("socket.bind", "socket.connect") and isinstance(arguments[1], (str, bytes)):
        path = os.fsencode(arguments[1])
        if path.startswith(b"\0"):
            raise FileNotFoundError(2, "No such file or directory")
        if len(path) > _LONGEST_SOCKET:
            raise OSError("AF_UNIX path too long")


class _Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in _NOT_IN_LIBC:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return super().__getattr__(name)


def _uname(real=os.uname):
    return os.uname_result(("Darwin", real().nodename, "23.6.0", _VERSION, "arm64"))


def begin():
    """Look like macOS from now on."""
    sysconfig.get_config_vars()  # read it now: the name of its data file contains the platform
    for name, gone in json.loads(_beside("names.json")).items():
        with suppress(ImportError):
            module = importlib.import_module(name)
            _LINUX_ONLY.append((module, {each: vars(module)[each] for each in gone if each in vars(module)}))
    selectors.DefaultSelector = selectors.PollSelector
    asks = types.ModuleType("_scproxy")
    asks._get_proxy_settings = asks._get_proxies = dict
    sys.modules["_scproxy"] = asks
    os.uname = _uname
    sys.meta_path.insert(0, _AsOnLinux())
    sys.addaudithook(_refuse)
    ctypes.CDLL = _Library
    _set_platform("darwin")


def _beside(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name)) as file:
        return file.read()


_LINUX_ONLY = []
begin()
