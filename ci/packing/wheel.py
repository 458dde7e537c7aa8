"""A Python wheel: `pip install` brings the command, and `python -m ledgerline` calls it."""

import base64
import hashlib
import io
import os
import re
import time
import zipfile

from . import linked, stage
from .tools import HOME, MACHINE, OUT, ROOT, VERSION, Failed, LeftOut, call, check, documented, epoch, fresh
from .tools import need, said, write

# The libraries that a manylinux wheel may need from the system, among those that a Rust program needs.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libutil|libpthread|libgcc_s|ld-linux-.*)\.so\.\d+")
SUMMARY = "Memory cgroups for programs that nobody recompiled: account for memory, and limit it, without root"

INIT = f'''"""The `ledgerline` command, as a Python package: `python -m ledgerline run -- ...`."""

__version__ = "{VERSION}"
'''

MAIN = '''"""Becomes the command: the process, its descriptors and its exit status are the command's own."""

import os
import sys
import sysconfig


def command():
    """Where pip put it: beside this package's Python, in the user's folder, or below --target."""
    target = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme="posix_user"), target]
    for folder in folders:
        path = os.path.join(folder, "ledgerline")
        if os.path.isfile(path):
            return path
    sys.exit("ledgerline: the command is not in " + ", ".join(folders) + ": install the package anew")


if __name__ == "__main__":
    path = command()
    os.execv(path, [path, *sys.argv[1:]])
'''


def glibc(file):
    """The newest version of glibc whose symbols a file needs, once it was seen that it needs no other library."""
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", call("readelf", "--dynamic", "--wide", file))
    for library in libraries:
        check(SYSTEM.fullmatch(library), f"{file.name} needs {library}, which not every machine has")
    versions = call("readelf", "--version-info", "--wide", file)
    return max(tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", versions))


def preloaded(tree):
    """The library that the command preloads: as a program finds it that runs under it."""
    file = OUT / "preloaded.so"
    copy = ["sh", "-c", 'cp "${LD_PRELOAD%%[: ]*}" "$0"', file]
    call(tree / "bin/ledgerline", "run", "--account", "/dev/null", "--", *copy)
    check(file.read_bytes()[:4] == b"\x7fELF", f"{file} is no library")
    return file


def tag(tree):
    """The machines that the wheel is for, by the C library that the command and what it preloads really need."""
    need("readelf:binutils")
    recorder = OUT / "recorder.so"
    files = [tree / "bin/ledgerline", tree / "bin/ledgerline-lab", preloaded(tree)]
    if MACHINE == "x86_64":
        call(tree / "bin/ledgerline", "layout", "record", "--save-library", recorder)
        files.append(recorder)
    newest = max(map(glibc, files))
    return f"py3-none-manylinux_{newest[0]}_{newest[1]}_{MACHINE}"


def contents(tree, tags):
    """Every file of the wheel but its list: name -> (bytes, mode)."""
    info, data = f"ledgerline-{VERSION}.dist-info", f"ledgerline-{VERSION}.data"
    files = {
        "ledgerline/__init__.py": INIT.encode(),
        "ledgerline/__main__.py": MAIN.encode(),
        f"{data}/scripts/ledgerline": (tree / "bin/ledgerline").read_bytes(),
        f"{data}/scripts/ledgerline-lab": (tree / "bin/ledgerline-lab").read_bytes(),
        f"{info}/METADATA": f"""\
Metadata-Version: 2.4
Name: ledgerline
Version: {VERSION}
Summary: {SUMMARY}
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: THIRD-PARTY
Project-URL: Home, {HOME}
Keywords: memory,cgroup,malloc,profiling
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.7
Description-Content-Type: text/plain

The `ledgerline` command runs a program that nobody recompiled, says which process, thread or shared library held how
much memory, and limits it:

    ledgerline run --max 512M -- python3 server.py
    python3 -m ledgerline run -- python3 server.py
""".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: ledgerline\nRoot-Is-Purelib: false\nTag: {tags}\n".encode(),
        f"{info}/licenses/THIRD-PARTY": linked.notices().encode(),
    }
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    for page in sorted((tree / "share/man/man1").iterdir()):
        files[f"{data}/data/share/man/man1/{page.name}"] = page.read_bytes()
    for file in stage.COMPLETIONS.values():
        files[f"{data}/data/{file}"] = (tree / file).read_bytes()
    return files


def build(tree):
    """Writes the wheel; returns its file."""
    tags = tag(tree)
    files = contents(tree, tags)
    record = f"ledgerline-{VERSION}.dist-info/RECORD"
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join(lines) + f"{record},,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # A zip has no time before 1980. The list comes last.
        when = time.gmtime(max(epoch(), 315_532_800))[:6]
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            archive.writestr(entry, data)
    wheel = fresh(OUT / "wheel") / f"ledgerline-{VERSION}-{tags}.whl"
    write(wheel, out.getvalue())
    said(f"wheel: {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
    return wheel


def try_it(wheel):
    """pip installs it where nothing is; the command and the module do the same; and it goes again."""
    need("python3")
    try:
        call("python3", "-c", "import ensurepip, venv")
    except Failed as why:
        raise LeftOut("python3 makes no environments (Debian's package python3-venv)") from why
    home = fresh(OUT / "venv")
    environment = dict(os.environ, HOME=str(home), PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    call("sh", "-c", documented("wheel"), cwd=wheel.parent, env=environment)
    place = home / "ledgerline"
    python = place / "bin/python"
    work = ["-c", "import sys; print(len(bytearray(1 << 22))); sys.exit(7)"]
    for how in ([place / "bin/ledgerline"], [python, "-m", "ledgerline"]):
        account = OUT / "account.json"
        account.unlink(missing_ok=True)
        printed = call(*how, "run", "--json", account, "--", python, *work, status=7)
        check(printed == f"{1 << 22}\n", f"a program under run printed {printed!r}")
        check('"current"' in account.read_text(), "run wrote no account")
    check("Usage: ledgerline-lab layout" in call(place / "bin/ledgerline", "layout", "--help"), "no laboratory")
    for page in ("ledgerline-run.1", "ledgerline-lab-layout-show.1"):
        check((place / "share/man/man1" / page).exists(), f"pip installed no page {page}")
    call(place / "bin/pip", "uninstall", "--yes", "ledgerline", env=environment)
    left = list(place.rglob("*ledgerline*"))
    check(not left, f"pip left {left}")
    said("wheel: installed by pip, `ledgerline run` and `python -m ledgerline run`, uninstalled without a trace")
