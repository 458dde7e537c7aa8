// Offsets of the context in a thread state. The fields are no part of the stable ABI, so the compiler looks them up.
#include <Python.h>
#include <stddef.h>

#ifdef Py_GIL_DISABLED
#error "ledgerline does not work with a free-threaded Python yet"
#endif
#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030d0000
#error "ledgerline works with CPython 3.11 and 3.12"
#endif

const size_t ledgerline_offset_of_context = offsetof(PyThreadState, context);
const size_t ledgerline_offset_of_version = offsetof(PyThreadState, context_ver);
const size_t ledgerline_offset_of_id = offsetof(PyThreadState, id);
const size_t ledgerline_offset_of_thread = offsetof(PyThreadState, thread_id);
const size_t ledgerline_offset_of_interpreter = offsetof(PyThreadState, interp);
