"""What brings code of its own: wheels from PyPI, plug-ins in C++, second namespaces, programs with a malloc of their own; each over
glibc's malloc and over other allocators."""

import os

from .program import LIBRARIES, Program, find

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
SOURCES = os.path.join(TOP, "crates/preload/tests/programs")
# The folder into which `ci/programs --wheels` installs them.
WHEELS = os.environ.get("LEDGERLINE_WHEELS", os.path.join(TOP, "target/wheels"))

ALLOCATORS = {
    "": None,
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2"),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2"),
}


def over(name, allocator, packages, needs, command, **more):
    """A program over one of the allocators."""
    if allocator:
        package, library = ALLOCATORS[allocator]
        path = f"{LIBRARIES}/{library}"
        name, packages, needs = f"{name} over {allocator}", (*packages, package), (*needs, path)
        more["environment"] = {**more.get("environment", {}), "LD_PRELOAD": path}
    return Program(name, packages, needs, command, **more)


# ---- wheels: each one's name on PyPI, the module that proves its presence, and its work. No output is random.

WORK = {
    ("numpy", "numpy"): """
import numpy as np
a = np.arange(n, dtype=np.float64).reshape(-1, 100) % 97
print(int((a.T @ a).sum()), np.sort(a.ravel())[::n // 7].tolist())
""",
    ("scipy", "scipy"): """
import numpy as np, scipy.sparse as sp, scipy.sparse.linalg as la
size = n // 1000
m = sp.diags([4.0, -1.0, -1.0], [0, -1, 1], shape=(size, size), format="csc")
print(round(float(la.spsolve(m, np.ones(size)).sum()), 6))
""",
    ("pandas", "pandas"): """
import pandas as pd
frame = pd.DataFrame({"key": [i % 13 for i in range(n)], "value": range(n)})
print(frame.groupby("key").value.agg(["sum", "max"]).to_string())
""",
    ("pyarrow", "pyarrow"): """
import pyarrow as pa, pyarrow.compute as pc
table = pa.table({"value": list(range(n))})
print(pc.sum(table["value"]).as_py(), table.sort_by([("value", "descending")])["value"][0].as_py())
""",
    ("duckdb", "duckdb"): """
import duckdb
query = f"select i % 11 as k, sum(i) as s, count(*) as c from range({n * 10}) t(i) group by k order by k"
print(duckdb.sql(query).fetchall())
""",
    ("polars", "polars"): """
import polars as pl
frame = pl.DataFrame({"key": [i % 13 for i in range(n)], "value": range(n)})
print(frame.group_by("key").agg(pl.col("value").sum()).sort("key").rows())
""",
    ("pillow", "PIL"): """
import io
from PIL import Image, ImageFilter
side = int(n ** 0.5)
image = Image.frombytes("L", (side, side), bytes(i * i % 251 for i in range(side * side)))
out = io.BytesIO()
image.resize((side * 2, side * 2)).filter(ImageFilter.GaussianBlur(3)).save(out, "PNG")
print(len(out.getvalue()))
""",
    ("lxml", "lxml"): """
from lxml import etree
root = etree.Element("rows")
for i in range(n // 10):
    etree.SubElement(root, "row", id=str(i)).text = "x" * (i % 50)
text = etree.tostring(root)
print(len(text), len(etree.fromstring(text).xpath("//row[@id mod 7 = 3]")))
""",
    ("grpcio", "grpc"): """
import concurrent.futures, grpc
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    call = channel.unary_unary("/echo/echo")
    print(sum(len(call(bytes(i % 5000))) for i in range(n // 500)))
server.stop(0).wait()
""",
    ("opencv-python-headless", "cv2"): """
import cv2, numpy as np
side = int(n ** 0.5)
image = (np.arange(side * side, dtype=np.uint32) * 7 % 251).astype(np.uint8).reshape(side, side)
print(int(cv2.GaussianBlur(image, (9, 9), 0).sum()), cv2.imencode(".png", image)[1].size)
""",
}
# Over every allocator; the others over glibc's alone.
EVERYWHERE = ("numpy", "pandas", "pyarrow", "duckdb", "polars")
PACKAGES = [name for name, _ in WORK]


def wheel(name, module, allocator):
    """A Python program that uses a wheel."""
    python = os.path.join(WHEELS, "bin/python")
    installed = os.path.join(WHEELS, f"lib/python3*/site-packages/{module}/__init__.py")
    text = "import sys\nn = int(sys.argv[1])\n" + WORK[name, module]
    return over(
        name,
        allocator,
        (f"PyPI: {name}",),
        (python, installed),
        lambda context: [python, "job.py", context.size(1_000_000, 100_000)],
        prepare=lambda context: context.write("job.py", text),
        environment={"OPENBLAS_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "2"},
    )


# ---- code in C and C++ that programs load


def prepared(context):
    """Compiles the programs and the plug-ins of the preloaded library's own tests."""
    common = ["-O1", "-pthread", "-fno-builtin", "-I", SOURCES, "-ldl"]

    def source(name):
        return os.path.join(SOURCES, name)

    for name in ("loads", "namespaces"):
        context.plain("gcc", "-o", context.path(name), source(f"{name}.c"), *common)
    for name, more in (("jump", ["-DJUMP"]), ("count", []), ("most", ["-DMOST"]), ("own", [])):
        file = "own_malloc.c" if name == "own" else "own_next.c"
        context.plain("gcc", "-o", context.path(f"{name}_malloc"), source(file), *common, "-rdynamic", *more)
    context.plain("gcc", "-shared", "-fPIC", "-o", context.path("plugin.so"), source("plugin.c"), *common)
    plugins = {
        "shared": [],
        "inside": ["-static-libstdc++", "-static-libgcc"],
        "own": ["-DOWN", "-static-libstdc++", "-static-libgcc"],
    }
    for name, more in plugins.items():
        options = ["-std=c++17", "-shared", "-fPIC", *common, *more]
        context.plain("g++", "-o", context.path(f"{name}.so"), source("plugin_cxx.cc"), *options)


def code(name, allocator, line, **more):
    """A line for the shell, in a folder with the programs and the plug-ins."""
    return over(
        name, allocator, ("gcc", "g++"), ("gcc", "g++"), lambda context: ["sh", "-c", line], prepare=prepared, **more
    )


def ways(letters):
    """Each plug-in by itself, and all of those that live together, loaded in a way."""
    each = " && ".join(f"./loads {letters} ./{plugin}.so" for plugin in ("shared", "inside", "own"))
    return f"{each} && ./loads {letters} ./shared.so ./inside.so"


def programs():
    """All of it."""
    for name, module in WORK:
        for allocator in ALLOCATORS if name in EVERYWHERE else ("",):
            yield wheel(name, module, allocator)
    for allocator in ALLOCATORS:
        for letters, told in (("ln", "LOCAL, NOW"), ("lz", "LOCAL, LAZY"), ("gn", "GLOBAL, NOW"), ("gz", "GLOBAL, LAZY")):
            yield code(f"C++ plug-ins, {told}", allocator, ways(letters))
        yield code("C++ plug-ins, closed", allocator, ways("lnc"))
        yield code("dlmopen", allocator, "./namespaces ./plugin.so", accounted=False)
        for way, told in (("jump", "by a jump"), ("count", "counting"), ("most", "without realloc")):
            yield code(f"malloc by RTLD_NEXT, {told}", allocator, f"./{way}_malloc")
    yield code("a malloc of its own", "", "./own_malloc", accounted=False)


PROGRAMS = list(programs())


def install():
    """Makes the folder of wheels, by pip; the exit status. What cannot be had is named and left out."""
    import subprocess
    import sys

    python = os.path.join(WHEELS, "bin/python")
    if not os.path.exists(python):
        subprocess.run([find("python3") or sys.executable, "-m", "venv", WHEELS], check=True)
    missing = []
    for name in PACKAGES:
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", name], check=False)
        if done.returncode != 0:
            missing.append(name)
    if missing:
        print(f"ci/programs: not installed: {', '.join(missing)}", file=sys.stderr)
    return 0
