"""Whole programs of a stranger under limits that refuse at random places: they end as the documents say, and never otherwise."""

import random

import pytest

PROGRAMS = {
    "words": """
import collections, re
def main():
    text = " ".join(f"word{n % 997} other" for n in range(20_000))
    return collections.Counter(re.findall(r"\\w+", text)).most_common(3)
""",
    "dataclasses": """
import dataclasses, json
@dataclasses.dataclass
class Item:
    name: str
    price: float
    tags: list
def main():
    items = [Item(f"n{n}", n * 1.5, [str(n)]) for n in range(8000)]
    return len(json.dumps([dataclasses.asdict(item) for item in items]))
""",
    "csv": """
import csv, io
def main():
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerows([n, n * 2, f"row {n}"] for n in range(20_000))
    return sum(int(row[0]) for row in csv.reader(io.StringIO(out.getvalue())))
""",
    "sqlite": """
import sqlite3
def main():
    with sqlite3.connect(":memory:") as db:
        db.execute("create table t (n, s)")
        db.executemany("insert into t values (?, ?)", [(n, f"s{n}") for n in range(20_000)])
        return len(db.execute("select * from t order by s").fetchall())
""",
    "asyncio": """
import asyncio
async def part(n):
    await asyncio.sleep(0)
    return [n] * 100
async def all():
    return sum(map(len, await asyncio.gather(*[part(n) for n in range(3000)])))
def main():
    return asyncio.run(all())
""",
    "xml": """
import xml.etree.ElementTree as tree
def main():
    root = tree.Element("r")
    for n in range(10_000):
        tree.SubElement(root, "e", n=str(n)).text = "text"
    return len(tree.fromstring(tree.tostring(root)))
""",
    "compile": """
import ast
def main():
    source = "\\n".join(f"def f{n}(a, b): return a * {n} + b" for n in range(1500))
    space = {}
    exec(compile(ast.parse(source), "made", "exec"), space)
    return space["f3"](2, 1)
""",
    "decimal": """
import decimal, fractions
def main():
    total = decimal.Decimal(0)
    kept = []
    for n in range(1, 10_000):
        kept.append(decimal.Decimal(1) / n)
        total += kept[-1]
    return sum(fractions.Fraction(1, n) for n in range(1, 200)), total
""",
    "generators": """
import itertools
def main():
    pairs = itertools.combinations(range(300), 2)
    groups = itertools.groupby(sorted(pairs, key=sum), key=sum)
    return [(key, list(group)) for key, group in groups][-1]
""",
    "classes": """
class Node:
    def __init__(self, left, right):
        self.left, self.right = left, right
    def __del__(self):
        pass
def make(depth):
    return Node(make(depth - 1), make(depth - 1)) if depth else None
def main():
    return make(13) is not None
""",
}

AROUND = """
import gc, random, sys, traceback
{program}
main()
import ledgerline
seed = int(sys.argv[1])
chance = random.Random(seed)
group = ledgerline.group("/g")
with group.enter():
    main()
peak = group.peak
told = 0
for _ in range(int(sys.argv[2])):
    gc.collect()
    group.max = group.current + int(peak * chance.random())
    try:
        with group.enter():
            main()
    except MemoryError as error:
        told += 1
        traceback.clear_frames(error.__traceback__)
    except Exception as error:
        # Python and its libraries turn an error or a refusal inside them into one of these.
        told += 1
        if type(error).__name__ != "ParseError" and not isinstance(error.__context__, MemoryError):
            raise
    assert ledgerline.current() is None
group.max = None
first = main()
# Only live memory is left by now: caches, and the work of an event loop. A run that is not refused adds nothing.
gc.collect()
before = group.current
with group.enter():
    assert str(main()) == str(first)
gc.collect()
assert group.current - before < 100_000, (before, group)
print(told)
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_refused_anywhere_ends_with_the_error_and_runs_again(run, program):
    told = run(AROUND.format(program=PROGRAMS[program]), str(random.Random(program).randrange(1000)), "25")
    assert int(told.split()[-1]) > 0
