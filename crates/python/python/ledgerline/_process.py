"""The parts that a process has once: the native module, the ledger, the hooks for numpy."""

import atexit
import importlib.abc
import os
import re
import sys
import threading

from ledgerline import _ledgerline
from ledgerline._full import GroupFull

_NUMPY = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")


def announce(name=None):
    """Makes the ledger of this process visible: ``ledgerline top``, ``show``, ``set``, ``serve`` find it by `name`.

    It comes before the first group, and once a process. Without a name it is the program's. Returns the path of the ledger's file.
    In a server that forks workers each worker calls it, after the fork.
    """
    if name is None:
        program = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
        name = re.sub(r"[^A-Za-z0-9_.+-]", "-", program).lstrip("_.+-")[:64] or "python"
    return _ledgerline._announce(name)


class _AfterNumpy(importlib.abc.MetaPathFinder):
    """Hooks numpy's data as soon as numpy is there."""

    def find_spec(self, name, path, target=None):
        if name not in _NUMPY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_hook(module):
            execute(module)
            _ledgerline._hook_numpy(module)

        spec.loader.exec_module = execute_and_hook
        return spec


def _begin():
    import importlib.util  # noqa: F401 (find_spec above)

    _ledgerline._begin(threading.main_thread().ident, GroupFull)
    os.register_at_fork(after_in_child=lambda: _ledgerline._after_fork(threading.get_ident()))
    atexit.register(_ledgerline._close)
    for name in _NUMPY:
        if name in sys.modules:
            _ledgerline._hook_numpy(sys.modules[name])
            return
    sys.meta_path.insert(0, _AfterNumpy())


_begin()
