"""Makes this Python that of macOS, as far as a Linux can show it. Each Python of the Mac runs it as it starts.

Beside it lies names.json: what only Linux has (linux_only.py). Nothing else of ours may be imported here.
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

# Of these the half for Linux is installed here: they are loaded as on Linux.
_OF_LINUX = ("torch", "psutil")
_HIDDEN = ("/dev/shm",)
_NOT_IN_LIBC = ("prctl", "on_exit", "memfd_create", "unshare", "setns", "gnu_get_libc_version", "syncfs")
_LONGEST_SOCKET = 103
_VERSION = "Darwin Kernel Version 23.6.0: stand-in"


class _AsOnLinux:
    """Loads a package that looks for the system that it was built for."""

    def find_spec(self, name, path=None, target=None):
        if name not in _OF_LINUX:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        _be("linux")
        try:
            self._loader.exec_module(module)
        finally:
            _be("darwin")
        if module.__name__ == "psutil":
            module.PROCFS_PATH = os.environ.get("MAC_PROCESSES", "/proc")


def _be(system):
    sys.platform = system
    platform.system = {"linux": lambda: "Linux", "darwin": lambda: "Darwin"}[system]
    for module, names in _GONE:
        if system == "linux":
            vars(module).update(names)
        for name in names if system == "darwin" else ():
            vars(module).pop(name, None)


def _refuse(event, arguments):
    """What the kernel of macOS does otherwise, where Python tells of it before."""
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
    """From now on this is macOS."""
    sysconfig.get_config_vars()  # by the name of the file that this Python was built with
    for name, gone in json.loads(_beside("names.json")).items():
        with suppress(ImportError):
            module = importlib.import_module(name)
            _GONE.append((module, {each: vars(module)[each] for each in gone if each in vars(module)}))
    selectors.DefaultSelector = selectors.PollSelector
    asks = types.ModuleType("_scproxy")
    asks._get_proxy_settings = asks._get_proxies = dict
    sys.modules["_scproxy"] = asks
    os.uname = _uname
    sys.meta_path.insert(0, _AsOnLinux())
    sys.addaudithook(_refuse)
    ctypes.CDLL = _Library
    _be("darwin")


def _beside(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name)) as file:
        return file.read()


_GONE = []
begin()
