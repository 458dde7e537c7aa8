"""Refusals at a limit, and the work that goes on."""

import gc
import json
import pickle
import re
import sys
import traceback

import pytest

import ledgerline


def test_a_large_block_is_refused_there_and_then(tenant):
    tenant.max = "10M"
    reached = False
    with pytest.raises(ledgerline.GroupFull) as caught:
        with tenant.enter():
            try:
                bytes(20_000_000)
            except MemoryError:
                reached = True
                raise
    full = caught.value
    assert reached
    assert (full.group, full.limit) == (tenant.path, 10 << 20)
    assert full.requested > 20_000_000 and full.usage < 1 << 20
    assert isinstance(full.__cause__, MemoryError)
    assert str(full).startswith(f"{tenant.path} is full: 19.1M requested, ")
    assert tenant.current < 100_000


class Node:
    def __init__(self, next):
        self.next = next
        self.name = "node"


def nodes():
    node = None
    while True:
        node = Node(node)


def small_tuples():
    kept = None
    while True:
        kept = (kept, 1)


def ints():
    kept, number = set(), 10**20
    while True:
        number += 1
        kept.add(number)


def text():
    text = ""
    while True:
        text += "some text"


def comprehension():
    return [str(n) for n in iter(int, 1)]


def table():
    kept = {}
    while True:
        kept[len(kept)] = [len(kept)]


def documents():
    document, kept = json.dumps([{"a": [1.5, 2.5], "b": "text"}] * 100), []
    while True:
        kept.append(json.loads(document))


def pickles():
    data, kept = pickle.dumps(list(range(1000, 3000))), []
    while True:
        kept.append(pickle.loads(data))


def matches():
    kept, words = [], "some words of text " * 50
    while True:
        kept.append(re.findall(r"\w+", words))


def sorting():
    kept = []
    while True:
        kept.append(sorted(range(1000), key=lambda n: -n))


def closures():
    kept = None

    def make(kept):
        return lambda: kept

    while True:
        kept = make(kept)


def calls(depth=0):
    kept = []
    while True:
        kept.append(bytes(400))
        if len(kept) > 100_000:
            return
        if len(kept) % 1000 == 0 and depth < 300:
            kept.append(calls(depth + 1))


def generators():
    kept = []
    while True:
        kept.append(n for n in range(10))
        next(kept[-1])


RUNAWAYS = [
    nodes, small_tuples, ints, text, comprehension, table, documents, pickles, matches, sorting, closures, calls, generators,
]


@pytest.mark.parametrize("runaway", RUNAWAYS)
def test_a_runaway_is_refused_and_the_program_goes_on(tenant, runaway):
    tenant.max = "8M"
    with pytest.raises(ledgerline.GroupFull) as caught:
        with tenant.enter():
            runaway()
    assert caught.value.group == tenant.path
    # The overdraft of small blocks, at most.
    assert tenant.peak < (8 << 20) + (2 << 20)
    trace = caught.value.__cause__.__traceback__ if caught.value.__cause__ else caught.value.__traceback__
    traceback.clear_frames(trace)
    traceback.clear_frames(caught.value.__traceback__)
    del trace, caught
    gc.collect()
    assert tenant.current < 100_000
    with tenant.enter():
        assert len([str(n) for n in range(10_000)]) == 10_000


@pytest.mark.parametrize("runaway", RUNAWAYS)
def test_the_limit_of_a_group_above_names_that_group(tenant, runaway):
    tenant.max = "4M"
    request = tenant.child("request")
    with pytest.raises(ledgerline.GroupFull) as caught:
        with request.enter():
            runaway()
    assert (caught.value.group, caught.value.limit) == (tenant.path, 4 << 20)


def test_the_handler_inside_can_work_with_what_is_left_to_it(tenant):
    tenant.max = "4M"
    kept = []
    with tenant.enter():
        try:
            while True:
                kept.append([len(kept)])
        except MemoryError as error:
            words = "".join(traceback.format_exception(error))
            report = {"error": words, "count": len(kept), "more": [str(n) for n in range(100)]}
            assert json.loads(json.dumps(report))["count"] > 1000
            # The block is left without an error: it was dealt with.
    assert "is full" in words and "test_the_handler_inside" in words


def test_leaving_a_full_group_never_fails(tenant):
    tenant.max = "1M"
    kept = []
    for _ in range(50):
        with pytest.raises(MemoryError):
            with tenant.enter():
                while True:
                    kept.append([len(kept)])
        assert ledgerline.current() is None
    assert tenant.current < 4 << 20


def test_a_full_group_can_be_entered_read_and_destroyed_from_inside(tenant):
    tenant.max = "2M"
    kept = []
    with tenant.enter():
        with pytest.raises(MemoryError):
            while True:
                kept.append([len(kept)])
        assert tenant.current >= 1 << 20 and "max 2.0M" in repr(tenant)
        child = tenant.child("child")
        with child.enter():
            assert ledgerline.current() == child
        child.destroy()
        kept.clear()
        gc.collect()
        assert tenant.current < 100_000
        kept.extend(range(1000))
    del kept


def test_a_program_that_swallows_the_error_is_told_again_and_stays_near_its_limit(tenant):
    tenant.max = "4M"
    kept, errors = [], 0
    with tenant.enter():
        while errors < 1000:
            try:
                kept.append([len(kept)])
            except MemoryError:
                errors += 1
    assert tenant.current < 6 << 20
    kept.clear()


def test_an_error_of_another_kind_leaves_as_it_is(tenant):
    tenant.max = "1M"
    with pytest.raises(KeyError):
        with tenant.enter():
            try:
                bytes(2_000_000)
            except MemoryError:
                raise KeyError("x") from None
    with pytest.raises(MemoryError) as caught:
        with tenant.enter():
            raise MemoryError("of its own")
    assert type(caught.value) is MemoryError


def test_limits_are_sizes_and_others_are_refused_with_a_reason(tenant):
    for given, read in [("64M", 64 << 20), (1000, 1000), (None, None), ("max", None), ("1.5G", 3 << 29), (0, 0)]:
        tenant.max = given
        assert tenant.max == read
    tenant.max = None
    for wrong in ("64MB", "lots", "", -1):
        with pytest.raises(ValueError):
            tenant.max = wrong
    for wrong in (1.5, [], True):
        with pytest.raises(TypeError):
            tenant.max = wrong
    with pytest.raises(ValueError):
        ledgerline.group(tenant.path + "/never", max="lots")
    assert tenant.children() == [] and tenant.max is None
    for wrong in ("a\0b", "x" * 1000):
        with pytest.raises(ValueError):
            tenant.child(wrong)


def test_a_limit_that_is_lowered_holds_for_what_comes(tenant):
    with tenant.enter():
        kept = bytes(5_000_000)
    tenant.max = "1M"
    with pytest.raises(ledgerline.GroupFull):
        with tenant.enter():
            bytes(100_000)
    del kept
    with tenant.enter():
        bytes(100_000)


def test_high_is_counted_and_refuses_nothing(tenant):
    tenant.high = "1M"
    with tenant.enter():
        bytes(5_000_000)
    assert tenant.high == 1 << 20
    assert tenant.events["high"] > 0 and tenant.events["max"] == 0


def test_groups_below_one_limit_are_refused_only_what_they_use_together(tenant):
    """Idle units of others are taken back before anything is refused."""
    tenant.max = "20M"
    children = [tenant.child(f"c{n}") for n in range(100)]
    kept = []
    for child in children:
        with child.enter():
            kept.append(bytes(10_000))
    with tenant.enter():
        kept.append(bytes(20 * (1 << 20) - 100 * 10_033 - 10_000))
    assert tenant.events["max"] == 0 and sys.getsizeof(kept[-1]) > 19_000_000


def test_a_block_that_grows_beyond_the_limit_stays_as_it_was(tenant):
    tenant.max = "1M"
    with tenant.enter():
        text = bytearray(b"x" * 1000)
        with pytest.raises(MemoryError):
            text.extend(bytes(5_000_000))
    assert text == b"x" * 1000


def test_numbers_of_the_refusals_are_in_events(tenant):
    tenant.max = "1M"
    with tenant.enter():
        for _ in range(5):
            with pytest.raises(MemoryError):
                bytes(2_000_000)
    assert tenant.events["max"] >= 5 and tenant.refused >= 5
