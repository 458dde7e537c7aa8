"""Says clearly where the module does not work, before the native half is loaded."""

import sys
import sysconfig


def why_not(name, version, free_threaded):
    """The sentence that says why this Python is refused; None if it is not."""
    if name != "cpython":
        return f"ledgerline hooks the allocators of CPython, and this is {name}"
    if free_threaded:
        return "ledgerline does not work with a free-threaded Python yet: its accounts rely on the GIL. Use a build with the GIL"
    if version < (3, 11):
        return "ledgerline needs Python 3.11 or later"
    if version >= (3, 13):
        return "ledgerline does not work with Python 3.13 yet: there an error at the end of a loop may skip the end of a `with`. Use 3.11 or 3.12"
    return None


_why = why_not(sys.implementation.name, sys.version_info, bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
if _why:
    raise ImportError(_why)
