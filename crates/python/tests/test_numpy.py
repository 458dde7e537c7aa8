"""numpy's data is charged as Python's own blocks are."""

import threading

import pytest

import ledgerline

numpy = pytest.importorskip("numpy")


def test_data_of_arrays_is_charged_and_returned_from_any_thread(tenant):
    kept = []
    with tenant.enter():
        for kind in ("f8", "i4", "u1"):
            kept += [numpy.ones(100_000, kind), numpy.zeros((100, 1000), kind), numpy.arange(50_000).astype(kind)]
        joined = numpy.concatenate(kept[::3])
    expected = sum(array.nbytes for array in kept) + joined.nbytes
    assert abs(tenant.current - expected) < 5000
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert abs(tenant.current - joined.nbytes) < 3000
    del joined
    assert tenant.current < 3000


def test_a_thread_with_the_group_is_charged_for_arrays_too(tenant):
    with tenant.enter():
        kept = []
        thread = threading.Thread(target=ledgerline.inherit(lambda: kept.append(numpy.ones(1_000_000))))
        thread.start()
        thread.join()
    assert tenant.current >= 8_000_000
    kept.clear()


def test_an_array_beyond_the_limit_is_refused(tenant):
    tenant.max = "10M"
    with pytest.raises(ledgerline.GroupFull) as caught:
        with tenant.enter():
            numpy.ones(5_000_000)
    assert caught.value.requested >= 40_000_000
    with tenant.enter():
        array = numpy.ones(100_000)
        array = numpy.resize(array, 200_000).copy()
        array.resize(50_000, refcheck=False)
        assert 400_000 <= tenant.current < 405_000
        with pytest.raises(MemoryError):
            array.resize(5_000_000, refcheck=False)
    del array
    assert tenant.current < 3000


def test_it_does_not_matter_which_is_imported_first(run):
    for first, second in [("numpy", "ledgerline"), ("ledgerline", "numpy")]:
        program = f"""
import {first}
import {second}
import ledgerline, numpy
before = numpy.ones(1_000_000)
group = ledgerline.group("/g")
with group.enter():
    after = numpy.ones(1_000_000)
    del before
print(8_000_000 <= group.current < 8_010_000)
del after
print(group.current < 3000)
"""
        assert run(program).split() == ["True", "True"]
