"""A group holds the sum of the sizes of its live blocks."""

import array
import collections
import gc
import random
import sys
import threading

import pytest

import ledgerline


def near(value, expected):
    return abs(value - expected) <= max(expected // 1000, 64)


KINDS = {
    "bytes": lambda n: bytes(n),
    "bytearray": lambda n: bytearray(n),
    "str": lambda n: "x" * n,
    "wide str": lambda n: "\u2603" * n,
    "int": lambda n: int.from_bytes(b"x" * n, "little"),
    "float": lambda n: n + 0.5,
    "tuple": lambda n: tuple([None] * (n + 30)),
    "list": lambda n: [None] * n,
    "set": lambda n: set(range(n % 256)),
    "dict": lambda n: dict.fromkeys(range(n % 256)),
    "array": lambda n: array.array("b", bytes(n)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_current_is_the_sum_of_the_sizes_of_what_lives(tenant, kind):
    make, random_ = KINDS[kind], random.Random(kind)
    kept = [None] * 2000
    gc.collect()
    with tenant.enter():
        for place in range(2000):
            kept[place] = make(random_.randrange(1, 3000))
    del place
    gc.collect()
    assert near(tenant.current, sum(map(sys.getsizeof, kept)))
    del kept[::2]
    # A full collection empties the lists of free objects that Python keeps.
    gc.collect()
    assert near(tenant.current, sum(map(sys.getsizeof, kept)))
    kept.clear()
    gc.collect()
    assert tenant.current == 0


def test_a_list_that_grows_is_charged_as_it_grows(tenant):
    with tenant.enter():
        grown = []
    for size in (10, 100, 1000, 100_000):
        with tenant.enter():
            while len(grown) < size:
                grown.append(None)
        assert near(tenant.current, sys.getsizeof(grown))
    del grown[10:]
    assert near(tenant.current, sys.getsizeof(grown))
    del grown
    assert tenant.current == 0


def test_what_is_freed_on_another_thread_returns_to_its_group(tenant):
    kept = collections.deque()
    with tenant.enter():
        things = [bytes(random.randrange(2000)) for _ in range(20_000)]
        kept.append(things)
        del things
    assert tenant.current > 10_000_000

    def free():
        kept.clear()
        gc.collect()

    thread = threading.Thread(target=free)
    thread.start()
    thread.join()
    assert tenant.current == 0


def test_the_owner_stays_whoever_grows_and_frees(tenant):
    other = tenant.parent.child(tenant.name + "-other")
    with tenant.enter():
        rows = [None] * 10
        text = bytearray(100)
    with other.enter():
        for n in range(10_000):
            rows.append(None)
        del n
        text.extend(bytes(1_000_000))
    assert near(tenant.current, sys.getsizeof(rows) + sys.getsizeof(text))
    assert other.current < 1000
    with other.enter():
        del rows, text
    gc.collect()
    assert (tenant.current, other.destroy()) == (0, 0)


def test_a_parent_has_what_its_children_have(tenant):
    a, b = tenant.child("a"), tenant.child("b")
    with a.enter():
        in_a = bytes(100_000)
        with b.enter():
            in_b = bytes(300_000)
        again = bytes(50_000)
    sizes = [sys.getsizeof(it) for it in (in_a, again, in_b)]
    assert near(a.current, sizes[0] + sizes[1]) and near(b.current, sizes[2])
    assert near(tenant.current, sum(sizes))
    assert {child.path for child in tenant.children()} == {a.path, b.path}


def test_nobody_is_charged_outside(tenant):
    before = ledgerline.root().current
    kept = [bytes(1000) for _ in range(1000)]
    assert ledgerline.current() is None
    assert ledgerline.root().current == before and kept


def test_what_was_made_before_the_hooks_is_nobodys_whoever_grows_and_frees_it(run):
    program = """
import gc
old = [bytes(i % 600) for i in range(20_000)]
table = {i: i for i in range(1000)}
grown = []
text = bytearray(1000)
import ledgerline
group = ledgerline.group("/g")
with group.enter():
    pass
gc.collect()
assert group.current == 0
with group.enter():
    old.clear()
    for i in range(10_000):
        grown.append(None)
    text.extend(bytes(100_000))
    for i in range(1000, 5000):
        table[i] = None
    del i
gc.collect()
print(group.current)
del grown, text, table
gc.collect()
print(group.current)
"""
    first, last = map(int, run(program).split())
    # The keys of a dict are a new block each time it grows: they are the group's.
    assert first < 400_000 and last == 0


def test_the_peak_is_the_most_that_was_in_use(tenant):
    with tenant.enter():
        held = bytes(5_000_000)
        del held
        held = bytes(1_000_000)
    assert 5_000_000 <= tenant.peak < 5_600_000
    tenant.reset_peak()
    assert 1_000_000 <= tenant.peak < 1_600_000
    del held


def test_a_destroyed_groups_memory_is_its_parents_until_it_is_freed(tenant):
    child = tenant.child("child")
    with child.enter():
        held = [bytes(1000) for _ in range(1000)]
    leftover = child.destroy()
    assert near(leftover, sum(map(sys.getsizeof, held)) + sys.getsizeof(held))
    assert near(tenant.current, leftover) and not child.exists
    del held
    gc.collect()
    assert tenant.current == 0
    with pytest.raises(RuntimeError, match="destroyed"):
        child.enter()


def test_a_group_that_ends_while_it_is_current_leaves_its_parent_current(tenant):
    child = tenant.child("child")
    with child.enter():
        child.destroy()
        held = bytes(100_000)
        assert near(tenant.current, sys.getsizeof(held))
        held_list = [None] * 1000
        held_list.extend([None] * 5000)
    del held, held_list
    assert tenant.current == 0


def test_groups_that_come_and_go_take_their_numbers_with_them(tenant):
    kept = []
    for turn in range(5000):
        child = tenant.child("turn")
        with child.enter():
            thing = bytes(1000)
            if turn % 100 == 0:
                kept.append(thing)
        child.destroy()
    del thing
    gc.collect()
    # The list itself grew inside, and its head was made outside.
    assert near(tenant.current, sum(map(sys.getsizeof, kept)) + sys.getsizeof(kept) - sys.getsizeof([]))
    kept.clear()
    assert tenant.current == 0
