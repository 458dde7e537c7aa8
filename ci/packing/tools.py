"""What builds of packages share: the project's version and time, programs that are called, what is left out."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The workspaces of accounting and of the laboratory.
WORKSPACES = (ROOT, ROOT / "lab")
OUT = ROOT / "target" / "packages"
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
VERSION = WORKSPACE["version"]
SUMMARY = "memory cgroups inside your process"
AUTHORS = "The Ledgerline authors"
# A placeholder until the project has a public home.
HOME = WORKSPACE["repository"]
MAIL = "ledgerline@example.org"
# Debian's names for machines, by the kernel's.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
MACHINE = platform.machine()


class LeftOut(Exception):
    """Something that this needs is not to be had."""


class Failed(Exception):
    """A package is not what it should be."""


def said(*words):
    print(*words, flush=True)


def need(*programs):
    """Programs, each as NAME or NAME:PACKAGE, without which a part is left out."""
    for program in programs:
        name, _, package = program.partition(":")
        if not shutil.which(name):
            raise LeftOut(f"{name} is missing (Debian's package {package or name})")


def check(holds, what):
    if not holds:
        raise Failed(what)


def call(*words, status=0, **options):
    """Runs a program; returns what it printed. It must end with `status`."""
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)
    if done.returncode != status:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        named = " ".join("..." if "\n" in word else word for word in words)
        raise Failed(f"{named} ended with {done.returncode}, not {status}:\n{told}")
    return done.stdout


def epoch():
    """The time that files in packages bear: SOURCE_DATE_EPOCH, or that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    try:
        return int(call("git", "log", "-1", "--format=%ct", cwd=ROOT))
    except (Failed, OSError, ValueError):
        return int((ROOT / "Cargo.toml").stat().st_mtime)


def fresh(folder):
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write(path, data, mode=0o644):
    """A file with its folders, whatever the umask is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)


def documented(kind):
    """The commands of docs/install.md that are tried for a kind, as lines for sh."""
    text = (ROOT / "docs/install.md").read_text()
    block = re.search(rf"^<!-- tried: {kind} -->\n```console\n(.*?)^```$", text, re.M | re.S)
    check(block, f"docs/install.md has no block that is tried for {kind}")
    lines = [line[2:] for line in block[1].splitlines() if line[:2] in ("$ ", "# ")]
    check(lines, f"the block for {kind} in docs/install.md has no command")
    return "".join(f"{line}\n" for line in ["set -eu", *lines])


def self_test(tests):
    """Runs functions that check themselves."""
    for test in tests:
        test()
    said(f"{len(tests)} tests of the script passed")
    sys.exit(0)
