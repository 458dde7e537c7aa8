"""The error, and what the module says of itself."""

import copy
import io
import pickle
import pydoc

import pytest

import ledgerline
from ledgerline import _supported


def test_the_error_is_a_memory_error_that_can_be_pickled_and_copied():
    full = ledgerline.GroupFull("/acme/q42", 64 << 20, 1 << 20, 63 << 20)
    assert isinstance(full, MemoryError)
    for again in (pickle.loads(pickle.dumps(full)), copy.deepcopy(full)):
        assert type(again) is ledgerline.GroupFull and str(again) == str(full)
        assert (again.group, again.limit, again.requested, again.usage) == ("/acme/q42", 64 << 20, 1 << 20, 63 << 20)
    assert str(full) == "/acme/q42 is full: 1.0M requested, 63.0M of max 64.0M in use"


def test_the_error_crosses_processes(run):
    program = """
import concurrent.futures, multiprocessing, ledgerline

def work():
    with ledgerline.limit("4M"):
        return len([[n] for n in range(1_000_000)])

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        error = pool.submit(work).exception()
        print(type(error).__name__, error.limit)
        print(pool.submit(int).result())
"""
    assert run(program).split() == ["GroupFull", "4194304", "0"]


@pytest.mark.parametrize(
    "name, version, free_threaded, words",
    [("pypy", (3, 11), False, "pypy"), ("cpython", (3, 13), True, "free-threaded"), ("cpython", (3, 13), False, "3.13"), ("cpython", (3, 10), False, "3.11")],
)
def test_a_python_that_is_not_supported_is_told_why(name, version, free_threaded, words):
    assert words in _supported.why_not(name, version, free_threaded)
    assert _supported.why_not("cpython", (3, 12), False) is None


def test_a_free_threaded_python_is_refused_before_anything_is_hooked(run):
    program = """
import sysconfig
real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else real(name)
try:
    import ledgerline
except ImportError as error:
    print(error)
import sys
assert "ledgerline._ledgerline" not in sys.modules
"""
    assert "free-threaded" in run(program)


def test_help_tells_of_everything_that_is_public():
    text = pydoc.render_doc(ledgerline, renderer=pydoc.plaintext)
    for name in ledgerline.__all__:
        assert name in text
        assert getattr(ledgerline, name).__doc__, name
    for name in dir(ledgerline.Group):
        if not name.startswith("_"):
            assert getattr(ledgerline.Group, name).__doc__, name


def test_tracemalloc_that_is_on_already_is_refused_with_a_reason(run):
    program = """
import tracemalloc, ledgerline
tracemalloc.start()
try:
    ledgerline.group("/g").enter().__enter__()
except RuntimeError as error:
    print(error)
tracemalloc.stop()
with ledgerline.group("/g").enter():
    tracemalloc.start()
    kept = bytes(1000)
with ledgerline.group("/g").enter():
    more = bytes(1000)
tracemalloc.stop()
del kept, more
import gc; gc.collect()
print(ledgerline.group("/g").current < 3000)
"""
    said, balanced = run(program).splitlines()
    assert "tracemalloc" in said and balanced == "True"


def test_a_program_ends_well_inside_a_group_and_with_threads_that_go_on(run):
    program = """
import threading, time, ledgerline
group = ledgerline.group("/g", max="4M")
def work():
    with group.enter():
        kept = []
        while True:
            try:
                kept.append([1])
            except MemoryError:
                kept.clear()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
group.enter().__enter__()
kept = [bytes(1000) for _ in range(100)]
"""
    for _ in range(5):
        run(program)


def test_the_root_limits_all_groups_together(tenant):
    program = "it has its own root"
    a, b = tenant.child("a"), tenant.child("b")
    tenant.max = "4M"
    with a.enter():
        kept = bytes(3_000_000)
    with pytest.raises(ledgerline.GroupFull) as caught:
        with b.enter():
            bytes(2_000_000)
    assert caught.value.group == tenant.path and program and kept


def test_types_are_told(tmp_path):
    import pathlib

    folder = pathlib.Path(ledgerline.__file__).parent
    assert (folder / "py.typed").exists()
    stub = (folder / "_ledgerline.pyi").read_text()
    for name in dir(ledgerline.Group):
        if not name.startswith("_"):
            assert f" {name}(" in stub, name
    assert io
