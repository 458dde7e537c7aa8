"""The group travels with contexts: tasks, callbacks, threads that carry one."""

import asyncio
import concurrent.futures
import contextvars
import gc
import threading

import pytest

import ledgerline


def test_the_current_group_is_that_of_the_innermost_block(tenant):
    inner = tenant.child("inner")
    assert ledgerline.current() is None
    with tenant.enter() as entered:
        assert entered == tenant == ledgerline.current()
        with inner.enter():
            assert ledgerline.current() == inner
        assert ledgerline.current() == tenant
        context = contextvars.copy_context()
    assert ledgerline.current() is None
    assert context.run(ledgerline.current) == tenant


def test_each_task_has_the_group_in_which_it_was_made_and_keeps_it_over_awaits(tenant):
    async def work(group, size, go):
        with group.enter():
            kept = []
            for _ in range(20):
                kept.append(bytes(size))
                await asyncio.sleep(0)
                assert ledgerline.current() == group
            inner = asyncio.create_task(part(size))
            kept.append(await inner)
            await go.wait()
            return kept

    async def part(size):
        await asyncio.sleep(0)
        return bytes(size)

    async def main():
        go = asyncio.Event()
        groups = [tenant.child(f"g{n}") for n in range(20)]
        tasks = [asyncio.create_task(work(group, 1000 * (n + 1), go)) for n, group in enumerate(groups)]
        await asyncio.sleep(0.1)
        for n, group in enumerate(groups):
            expected = 21 * (1000 * (n + 1) + 33)
            assert expected <= group.current < expected + 3000
        assert ledgerline.current() is None
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    gc.collect()
    assert tenant.current < 5000


def test_of_tasks_that_run_at_once_the_runaway_alone_is_refused(tenant):
    tenant.max = "200M"

    async def work(group, runaway):
        with group.enter():
            kept = []
            for step in range(200):
                for _ in range(500 if runaway else 5):
                    kept.append([step] * 10)
                await asyncio.sleep(0)
            return len(kept)

    async def main():
        groups = [tenant.child(f"t{n}", max="4M") for n in range(12)]
        tasks = [work(group, n % 6 == 0) for n, group in enumerate(groups)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    for n, result in enumerate(results):
        if n % 6 == 0:
            assert isinstance(result, ledgerline.GroupFull) and result.group.endswith(f"/t{n}")
        else:
            assert result == 1000


@pytest.mark.parametrize("how", ["to_thread", "executor", "inherit", "run"])
def test_a_thread_that_carries_the_context_has_the_group(tenant, how):
    def work():
        kept = bytes(100_000)
        return ledgerline.current(), tenant.current, kept

    with tenant.enter():
        if how == "to_thread":

            async def main():
                return await asyncio.to_thread(work)

            seen = asyncio.run(main())
        elif how == "executor":
            with ledgerline.ThreadPoolExecutor(1) as pool:
                seen = pool.submit(work).result()
        elif how == "run":
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                seen = pool.submit(contextvars.copy_context().run, work).result()
        else:
            seen = []
            thread = threading.Thread(target=ledgerline.inherit(lambda: seen.extend(work())))
            thread.start()
            thread.join()
    group, used, kept = seen
    assert group == tenant and used >= 100_000


def test_a_thread_that_carries_no_context_has_no_group(tenant):
    with tenant.enter():
        before, seen = tenant.current, []
        thread = threading.Thread(target=lambda: seen.append((ledgerline.current(), bytes(1_000_000))))
        thread.start()
        thread.join()
        assert seen[0][0] is None
        assert tenant.current - before < 50_000


def test_a_new_thread_in_the_place_of_one_that_ended_has_no_group(tenant):
    """States of threads are made at the places of old ones, and versions of contexts begin anew."""
    kept = []

    def inside():
        entered = tenant.enter()
        entered.__enter__()
        kept.append(bytes(10))

    def outside():
        kept.append(bytes(100_000))

    for _ in range(50):
        for work in (inside, outside):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert tenant.current < 50_000


def test_callbacks_of_the_loop_have_the_context_in_which_they_were_called(tenant):
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        with tenant.enter():
            loop.call_soon(lambda: seen.append(ledgerline.current()))
            loop.call_later(0.001, lambda: seen.append(ledgerline.current()))
        loop.call_soon(lambda: seen.append(ledgerline.current()))
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert seen == [tenant, None, tenant]


def test_an_entered_block_is_entered_once(tenant):
    entered = tenant.enter()
    with entered:
        with pytest.raises(RuntimeError, match="entered already"):
            entered.__enter__()
    assert ledgerline.current() is None
    entered.__exit__(None, None, None)
    assert ledgerline.current() is None


def test_the_loop_survives_a_task_that_allocates_without_awaiting(tenant):
    tenant.max = "4M"

    async def runaway():
        with tenant.enter():
            kept = []
            while True:
                kept.append([len(kept)])

    async def steady():
        for _ in range(20):
            await asyncio.sleep(0)
        return "steady"

    async def main():
        for _ in range(10):
            results = await asyncio.gather(runaway(), steady(), return_exceptions=True)
            assert isinstance(results[0], ledgerline.GroupFull) and results[1] == "steady"
            results = None
            gc.collect()

    asyncio.run(main())


def test_a_runaway_on_a_loop_in_another_thread_is_refused_and_the_loop_goes_on(tenant):
    tenant.max = "4M"
    done = []

    async def runaway():
        with tenant.enter():
            kept = []
            while True:
                kept.append([len(kept)])

    async def main():
        for _ in range(5):
            try:
                await asyncio.create_task(runaway())
            except ledgerline.GroupFull:
                done.append(True)
            gc.collect()
        done.append(await asyncio.sleep(0, "end"))

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
    assert done == [True] * 5 + ["end"]
