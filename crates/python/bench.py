"""Measures what the hooks cost, beside a Python without them: alternating runs of each loop, in processes of their own.

    python bench.py [ROUNDS] [LOOP...]

Prints for each loop the ratio of the least CPU times, with the hooks and in a group, and with the hooks and in none; and plain against
plain, which is what the machine adds. `steps` prints what single steps take, in nanoseconds.
"""

import json
import os
import statistics
import subprocess
import sys
import time

PREAMBLE = {
    "plain": "def main(): work()",
    "plain again": "def main(): work()",
    "in a group": "import ledgerline\ndef main():\n    with ledgerline.group('/bench').enter(): work()",
    "no group": "import ledgerline\ndef main():\n    with ledgerline.group('/bench').enter(): pass\n    work()",
    "tracemalloc": "import tracemalloc\ntracemalloc.start()\ndef main(): work()",
}

LOOPS = {
    "lists": "for _ in range(300000): [1, 2, 3]",
    "tuples": "kept = [(n, n + 1) for n in range(400000)]",
    "objects": "class C:\n    def __init__(self, n): self.n = n\nkept = [C(n) for n in range(200000)]",
    "floats": "x = 0.5\nfor n in range(800000): x = x * 1.0000001 + n",
    "str": "kept = [str(n) for n in range(400000)]",
    "json": "import json\nd = json.dumps([{'a': n, 'b': [1.5, str(n)]} for n in range(1000)])\nfor _ in range(40): json.loads(d)",
    "pickle": "import pickle\nd = pickle.dumps([{'a': n, 'b': [1.5, str(n)]} for n in range(1000)])\nfor _ in range(80): pickle.loads(d)",
    "dicts": "kept = [{'a': n, 'b': n} for n in range(150000)]",
    "bytes": "for n in range(300000): bytes(n % 2000)",
    "sort": "import random\nr = random.Random(1)\nfor _ in range(20): sorted(r.random() for _ in range(10000))",
    "calls": "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(25)",
    "regex": "import re\nt = 'some words of text ' * 400\nfor _ in range(60): re.findall(r'\\w+', t)",
    "split": "t = 'some words of text ' * 1000\nfor _ in range(100): t.split()",
    "asyncio": "import asyncio\nasync def t():\n    for _ in range(20): await asyncio.sleep(0)\nasync def m(): await asyncio.gather(*[t() for _ in range(500)])\nasyncio.run(m())",
}

TIMED = """
import time, sys, gc
{preamble}
def work():
    exec(code, {{}})
code = compile(sys.argv[1], "loop", "exec")
main()
best = None
for _ in range(3):
    began = time.process_time()
    main()
    took = time.process_time() - began
    best = took if best is None else min(best, took)
print(best)
"""


def timed(kind, loop):
    program = TIMED.format(preamble=PREAMBLE[kind])
    return float(subprocess.run([sys.executable, "-c", program, loop], capture_output=True, text=True, check=True).stdout)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    names = sys.argv[2:] or list(LOOPS)
    kinds = ["plain again", "in a group", "no group", "tracemalloc"]
    logs = {kind: [] for kind in kinds}
    print(f"{'':10}" + "".join(f"{kind:>14}" for kind in kinds))
    for name in names:
        times = {kind: [] for kind in ("plain", *kinds)}
        for turn in range(rounds):
            for kind in times:
                if kind != "tracemalloc" or turn == 0:
                    times[kind].append(timed(kind, LOOPS[name]))
        # (The least: what else runs on the machine only adds.)
        ratios = {kind: min(times[kind]) / min(times["plain"]) for kind in kinds}
        for kind in kinds:
            logs[kind].append(ratios[kind])
        print(f"{name:10}" + "".join(f"{ratios[kind]:14.3f}" for kind in kinds), flush=True)
    print(f"{'geometric':10}" + "".join(f"{statistics.geometric_mean(logs[kind]):14.3f}" for kind in kinds))


def steps():
    import asyncio

    began = time.perf_counter_ns()
    import ledgerline

    imported = time.perf_counter_ns() - began
    group = ledgerline.group("/steps")
    taken = {"import (ms)": imported / 1e6}
    for _ in range(2):
        began = time.process_time_ns()
        for _ in range(200_000):
            with group.enter():
                pass
        taken["enter and exit"] = (time.process_time_ns() - began) / 200_000
        began = time.process_time_ns()
        for _ in range(20_000):
            with ledgerline.limit("1M"):
                pass
        taken["limit()"] = (time.process_time_ns() - began) / 20_000

    async def task(group, n):
        if group is None:
            for _ in range(n):
                await asyncio.sleep(0)
        else:
            with group.enter():
                for _ in range(n):
                    await asyncio.sleep(0)

    async def tasks(groups, n):
        await asyncio.gather(*[task(group, n) for group in groups])

    groups = [ledgerline.group(f"/steps/{n}") for n in range(10)]
    for name, given in [("step of a task, no group", [None] * 10), ("step of a task, ten groups", groups)]:
        began = time.process_time_ns()
        asyncio.run(tasks(given, 20_000))
        taken[name] = (time.process_time_ns() - began) / 200_000
    print(json.dumps({name: round(value, 2) for name, value in taken.items()}, indent=1), os.uname().machine, sys.version.split()[0])


if __name__ == "__main__":
    steps() if sys.argv[1:] == ["steps"] else main()
