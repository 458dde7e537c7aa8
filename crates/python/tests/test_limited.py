"""`limit` and `limited`: a group for the time of a call."""

import asyncio
import gc
import inspect

import pytest

import ledgerline


def test_each_call_has_a_group_of_its_own_that_ends_with_it(tenant):
    seen = []

    @ledgerline.limited("4M")
    def work(n):
        """Works."""
        seen.append(ledgerline.current())
        assert seen[-1].max == 4 << 20 and seen[-1].parent == tenant
        return bytes(n)

    assert (work.__name__, work.__doc__) == ("work", "Works.")
    with tenant.enter():
        assert len(work(1000)) == len(work(2000)) - 1000
        with pytest.raises(ledgerline.GroupFull) as caught:
            work(5_000_000)
        assert ledgerline.current() == tenant
    assert "work." in caught.value.group
    assert len({group for group in seen}) == 3 and not any(group.exists for group in seen)
    assert tenant.children() == []


def test_what_a_call_returns_stays_charged_above_it(tenant):
    @ledgerline.limited("4M", below=tenant)
    def work():
        return bytes(1_000_000)

    kept = work()
    assert 1_000_000 <= tenant.current < 1_010_000
    del kept
    assert tenant.current < 2000


def test_a_coroutine_is_in_its_group_over_its_awaits(tenant):
    @ledgerline.limited("2M", below=tenant)
    async def work(n):
        kept = []
        for _ in range(n):
            kept.append(bytes(100_000))
            await asyncio.sleep(0)
        return len(kept)

    async def main():
        return await asyncio.gather(*[work(n) for n in (5, 50, 10)], return_exceptions=True)

    assert inspect.iscoroutinefunction(work)
    first, second, third = asyncio.run(main())
    assert (first, third) == (5, 10) and isinstance(second, ledgerline.GroupFull)


def test_a_generator_is_in_its_group_and_its_caller_is_not(tenant):
    @ledgerline.limited("2M", below=tenant)
    def parts(n):
        kept = []
        try:
            for number in range(n):
                kept.append(bytes(100_000))
                got = yield ledgerline.current().path
                if got:
                    kept.append(got)
        finally:
            kept.append(ledgerline.current())
        return len(kept)

    assert inspect.isgeneratorfunction(parts)
    generator = parts(5)
    paths = []
    for path in generator:
        paths.append(path)
        assert ledgerline.current() is None
    assert len(set(paths)) == 1 and paths[0].startswith(tenant.path)
    generator = parts(50)
    with pytest.raises(ledgerline.GroupFull):
        list(generator)
    generator = parts(5)
    next(generator)
    assert generator.send(b"x").startswith(tenant.path)
    generator.close()
    generator = parts(5)
    next(generator)
    with pytest.raises(KeyError):
        generator.throw(KeyError("x"))

    def outer():
        return (yield from parts(2))

    generator = outer()
    next(generator), next(generator)
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == 3
    gc.collect()
    assert tenant.children() == []


def test_a_generator_that_is_dropped_half_way_ends_its_group(tenant):
    @ledgerline.limited("2M", below=tenant)
    def parts():
        while True:
            yield bytes(1000)

    generator = parts()
    next(generator)
    assert len(tenant.children()) == 1
    del generator
    gc.collect()
    assert tenant.children() == []


def test_an_asynchronous_generator_is_in_its_group_and_its_caller_is_not(tenant):
    @ledgerline.limited("2M", below=tenant)
    async def parts(n):
        kept = []
        for _ in range(n):
            kept.append(bytes(100_000))
            await asyncio.sleep(0)
            yield ledgerline.current().path

    async def main():
        paths = []
        async for path in parts(5):
            paths.append(path)
            assert ledgerline.current() is None
        with pytest.raises(ledgerline.GroupFull):
            async for path in parts(50):
                pass
        generator = parts(5)
        await generator.__anext__()
        await generator.aclose()
        return paths

    paths = asyncio.run(main())
    assert len(set(paths)) == 1 and paths[0].startswith(tenant.path)
    assert tenant.children() == []


def test_what_a_runaway_held_is_freed_though_its_traceback_is_kept(tenant):
    def runaway():
        kept = []
        while True:
            kept.append(bytes(10_000))

    kept = []
    try:
        with ledgerline.limit("4M", below=tenant):
            runaway()
    except ledgerline.GroupFull as full:
        kept.append(full)
    assert tenant.current < 50_000 and kept[0].__traceback__ is not None


def test_a_limit_is_entered_once_and_its_size_makes_sense(tenant):
    made = ledgerline.limit("1M", below=tenant.path)
    with made:
        with pytest.raises(RuntimeError):
            made.__enter__()
    with pytest.raises(ValueError):
        with ledgerline.limit("1MB"):
            pass
    with ledgerline.limit(None, below=tenant, name="a/b") as group:
        assert group.max is None and group.name.startswith("a_b.")


@pytest.mark.parametrize("spare", range(0, 3000, 37))
def test_an_error_that_comes_as_a_limit_is_left_or_entered_leaves_no_group_current(tenant, spare):
    """The last small block of a call may be the one that is too many."""
    tenant.max = 200_000

    @ledgerline.limited(None, below=tenant)
    def work(n):
        return [object() for _ in range(n)]

    kept = []
    for _ in range(30):
        try:
            kept.append(work(400 + spare // 37))
        except MemoryError:
            pass
        assert ledgerline.current() is None
    for _ in range(3):
        try:
            with ledgerline.limit(None, below=tenant):
                kept.append((object(), spare))
        except MemoryError:
            pass
        assert ledgerline.current() is None
    del kept
    gc.collect()
