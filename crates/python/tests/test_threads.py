"""Groups on threads: refusals reach the thread that is too large, and accounts balance."""

import collections
import concurrent.futures
import contextvars
import gc
import random
import threading
import traceback
import zlib

import ledgerline


def run(*works):
    """Runs functions on threads of their own, and returns what each returned or raised."""
    results = [None] * len(works)

    def call(place, work):
        try:
            results[place] = work()
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)
            results[place] = error

    threads = [threading.Thread(target=call, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_runaway_on_a_thread_is_refused_there_alone(tenant):
    def runaway(group):
        def work():
            with group.enter():
                kept = []
                while True:
                    kept.append([len(kept)])

        return work

    def steady(group):
        def work():
            with group.enter():
                return sum(len([str(n) for n in range(1000)]) for _ in range(200))

        return work

    groups = [tenant.child(f"t{n}", max="4M") for n in range(6)]
    works = [(runaway if n % 2 == 0 else steady)(group) for n, group in enumerate(groups)]
    results = run(*works)
    for n, result in enumerate(results):
        if n % 2 == 0:
            assert isinstance(result, ledgerline.GroupFull), result
            assert (result.group, result.limit) == (groups[n].path, 4 << 20)
        else:
            assert result == 200_000
    for group in groups:
        assert group.peak < 16 << 20
    gc.collect()


def test_a_runaway_on_a_thread_is_refused_while_the_main_thread_waits(tenant):
    tenant.max = "2M"
    for _ in range(10):
        [result] = run(lambda: runaway(tenant))
        assert isinstance(result, ledgerline.GroupFull)
        gc.collect()


def runaway(group):
    with group.enter():
        kept = None
        while True:
            kept = (kept, object())


def test_an_executor_keeps_its_threads_when_work_is_refused(tenant):
    tenant.max = "2M"
    with tenant.enter():
        inside = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            bad, good = pool.submit(inside.copy().run, grow), pool.submit(int)
            assert isinstance(bad.exception(timeout=60), MemoryError)
            assert good.result(timeout=60) == 0
            traceback.clear_frames(bad.exception().__traceback__)
            bad = good = None
            gc.collect()


def grow():
    kept = []
    while True:
        kept.append([len(kept)])


def test_blocks_that_threads_hand_around_leave_every_group_at_zero(tenant):
    groups = [tenant.child(f"g{n}") for n in range(8)]
    shared = collections.deque()

    def work(seed):
        def work():
            random_ = random.Random(seed)
            for _ in range(5000):
                with groups[random_.randrange(8)].enter():
                    thing = random_.choice([bytes, bytearray, lambda n: [None] * n])(random_.randrange(3000))
                shared.append(thing)
                if random_.random() < 0.6:
                    try:
                        other = shared.popleft()
                    except IndexError:
                        continue
                    if isinstance(other, bytearray):
                        other.extend(b"x" * random_.randrange(3000))
                        shared.append(other)

        return work

    assert run(*map(work, range(6))) == [None] * 6
    assert tenant.current > 1_000_000
    shared.clear()
    gc.collect()
    assert [group.current < 1000 for group in groups] == [True] * 8
    for group in groups:
        group.destroy()
    gc.collect()
    assert tenant.current < 1000


def test_what_is_allocated_without_the_lock_of_the_interpreter_is_charged_and_returned(tenant):
    """zlib lets go of the GIL, and asks for its state before."""
    data = random.Random(1).randbytes(200_000)

    def work():
        with tenant.enter():
            for _ in range(20):
                assert zlib.decompress(zlib.compress(data, 1)) == data
                compressor = zlib.compressobj()
                compressor.compress(data)

    assert run(*[work] * 4) == [None] * 4
    gc.collect()
    assert tenant.peak > 400_000 and tenant.current < 2000
