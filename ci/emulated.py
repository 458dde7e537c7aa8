"""Other machines in an emulator: Debian's kernels and packages for an architecture, a system made of them, and what its
programs print. (What `ci/arm64` and `ci/kernels` share.)

Nothing here touches the packages of the machine that it runs on: lists, states and roots are kept below `target/emulated`.
"""

import glob
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "target" / "emulated"


def said(*words):
    print(*words, flush=True)


class LeftOut(Exception):
    """Something that this needs is not to be had."""


def program(name, package):
    if not shutil.which(name):
        raise LeftOut(f"{name} is missing (package {package})")
    return name


class Debian:
    """Debian's packages for an architecture, of the release that this machine takes its own from."""

    def __init__(self, architecture):
        self.architecture = architecture
        self.folder = KEPT / architecture

    def options(self):
        lists = self.folder / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (lists / part).mkdir(parents=True, exist_ok=True)
        (lists / "status").touch()
        state = {
            "APT::Architecture": self.architecture, "APT::Architectures": self.architecture, "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false", "Dir::State": lists, "Dir::State::status": lists / "status",
            "Dir::State::lists": lists / "lists", "Dir::Cache": lists / "cache",
        }
        return [word for key, value in state.items() for word in ("-o", f"{key}={value}")]

    def call(self, *words):
        program("apt-get", "apt")
        program("dpkg", "dpkg")
        command = [words[0], *self.options(), *words[1:]]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            why = (done.stderr.strip() or "?").splitlines()[-1]
            raise LeftOut(f"Debian's packages for {self.architecture} cannot be had: {' '.join(words)}: {why}")
        return done.stdout

    def update(self):
        """Asks for the lists of packages, once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options()
        if not list((self.folder / "apt" / "lists").glob("*_Packages*")):
            self.call("apt-get", "-qq", "update")

    def kernel(self, package):
        """The newest kernel that a package stands for (`linux-image-cloud-amd64`): its file, downloaded once."""
        kept = self.folder / package
        found = sorted(kept.glob("boot/vmlinuz-*"))
        if found:
            return found[-1]
        self.update()
        names = re.findall(r"^Depends:.*?(linux-image-[^ ,]+)", self.call("apt-cache", "show", package), re.M)
        if not names:
            raise LeftOut(f"there is no package {package}")
        self.call("apt-get", "-qq", "download", names[0])
        file = glob.glob(str(self.folder / f"{names[0]}_*.deb"))[0]
        subprocess.run(["dpkg", "-x", file, str(kept)], check=True)
        os.remove(file)
        # Its modules are not used: only the file is kept.
        shutil.rmtree(kept / "lib", ignore_errors=True)
        shutil.rmtree(kept / "usr", ignore_errors=True)
        return sorted(kept.glob("boot/vmlinuz-*"))[-1]

    def root(self, packages):
        """A root with these packages and what they need, unpacked once; their scripts do not run."""
        root = self.folder / "root"
        listed = root / ".packages"
        wanted = " ".join(sorted(packages))
        if listed.exists() and listed.read_text() == wanted:
            return root
        shutil.rmtree(root, ignore_errors=True)
        self.update()
        self.call("apt-get", "-qq", "--yes", "--download-only", "install", *packages)
        archives = self.folder / "apt" / "cache" / "archives"
        # Programs and libraries are in one place each, like in an installed system.
        for name in ("bin", "sbin", "lib"):
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for file in sorted(archives.glob("*.deb")):
            unpacked = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE)
            subprocess.run(
                ["tar", "--extract", "--keep-directory-symlink", "--directory", root, "--exclude=./usr/share/doc",
                 "--exclude=./usr/share/man", "--exclude=./usr/share/locale", "--no-same-owner"],
                stdin=unpacked.stdout, check=True,
            )
            if unpacked.wait() != 0:
                raise LeftOut(f"{file.name} cannot be unpacked")
        # The links that the packages' scripts would have made.
        for name, to in (("sh", "dash"), ("cc", "gcc"), ("c++", "g++"), ("awk", "mawk")):
            link = root / "usr/bin" / name
            if not os.path.lexists(link) and (root / "usr/bin" / to).exists():
                link.symlink_to(to)
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        shutil.rmtree(archives)
        listed.write_text(wanted)
        return root


# ---- a system


class Archive:
    """Files as cpio's "newc", which the kernel unpacks into memory at its start."""

    def __init__(self):
        self.entries = {}

    def add(self, name, data, mode=0o100755):
        """A file, and the folders that it lies in."""
        name = str(name).lstrip("/")
        for parent in reversed(pathlib.PurePath(name).parents):
            if str(parent) != ".":
                self.entries.setdefault(str(parent), (0o40755, b""))
        self.entries[name] = (mode, data)

    def add_tree(self, folder):
        """All that a folder holds."""
        for place, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(place, name)
                mode = os.lstat(path).st_mode
                inner = os.path.relpath(path, folder)
                if stat.S_ISLNK(mode):
                    self.entries[inner] = (mode, os.readlink(path).encode())
                elif stat.S_ISDIR(mode):
                    self.entries[inner] = (0o40755, b"")
                elif stat.S_ISREG(mode):
                    self.entries[inner] = (mode, pathlib.Path(path).read_bytes())

    def write(self, path):
        with open(path, "wb") as out:
            entries = [*self.entries.items(), ("TRAILER!!!", (0, b""))]
            for number, (name, (mode, data)) in enumerate(entries, 1):
                name = name.encode()
                fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
                entry = b"070701" + b"".join(b"%08X" % field for field in fields) + name + b"\0"
                out.write(entry + bytes(-len(entry) % 4))
                out.write(data)
                out.write(bytes(-len(data) % 4))


def add_tests(files, programs, built):
    """Programs of tests where they were built (below `built`), and what they look for: their sources and what lies beside, and a
    cargo. (It does nothing: they ask it for a library to preload, which was built before.)"""
    for path in programs:
        files.add(path, without_debug(path))
    for folder in ("crates/ledgerline", "crates/preload", "crates/cli", "docs/schemas"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                files.add(path, path.read_bytes())
    found = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True) if shutil.which("rustup") else None
    files.add(found.stdout.strip() if found and found.returncode == 0 else shutil.which("cargo"), b"#!/bin/sh\nexit 0\n")
    files.add(built / "CACHEDIR.TAG", b"")
    files.add(built / "tmp" / ".here", b"")


def without_debug(path):
    """A program without what debuggers read, which is nine tenths of it; as it is where nothing can strip it."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "stripped")
        for strip in filter(shutil.which, ("strip", "aarch64-linux-gnu-strip")):
            # Stripping a file for another machine fails, and may remove the file.
            if subprocess.run([strip, "--strip-debug", "-o", out, path], capture_output=True).returncode == 0:
                return out.read_bytes()
    return pathlib.Path(path).read_bytes()


def add_init(files, compiler, lines):
    """The first program, and what it runs: a line each (see `emulated-init.c`)."""
    init = KEPT / f"init-{compiler}"
    source = ROOT / "ci" / "emulated-init.c"
    subprocess.run([compiler, "-O1", "-Wall", "-static", "-o", init, source], check=True)
    files.add("init", init.read_bytes())
    files.add("programs", "".join(line + "\n" for line in lines).encode())


def interpreted(file, libraries):
    """The loader of a dynamically linked program and the libraries that it names, all the way: name in the system -> file.
    `libraries` are the folders to look in. A program that is static has none."""
    def named(path):
        text = subprocess.run(["readelf", "-ld", path], capture_output=True, text=True, check=True).stdout
        return re.findall(r"interpreter: (\S+)\]", text), re.findall(r"\(NEEDED\).*\[(.+)\]", text)

    found, waiting = {}, [file]
    while waiting:
        loaders, needed = named(waiting.pop())
        for name in [*loaders, *needed]:
            base = os.path.basename(name)
            path = next((folder / base for folder in libraries if (folder / base).exists()), None)
            if path is None:
                raise LeftOut(f"{base}, which {file} needs, is in none of {', '.join(map(str, libraries))}")
            inner = name if name.startswith("/") else f"/lib/{base}"
            if inner not in found:
                found[inner] = path
                waiting.append(path)
    return found


# ---- running


# A system that prints nothing for this many seconds hangs. The total time has no limit: a busy machine emulates slowly.
SILENT = 900


def boot(command):
    """Starts an emulator, passes on what its system prints, and returns it."""
    system = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed, spoke = [], time.monotonic()
    try:
        os.set_blocking(system.stdout.fileno(), False)
        while True:
            ended = system.poll() is not None
            text = (system.stdout.read() or b"").decode(errors="replace").replace("\r", "")
            if text:
                printed.append(text)
                print(text, end="", flush=True)
                spoke = time.monotonic()
            if ended:
                return "".join(printed)
            if time.monotonic() - spoke > SILENT:
                sys.exit(f"failed: the system said nothing for {SILENT} s")
            time.sleep(0.2)
    finally:
        system.kill()
        system.wait()


def outcome(name, text):
    """What a program printed, and why it failed, if it did."""
    found = re.search(rf"^== {re.escape(name)}\n(.*?)^== {re.escape(name)} ended: (\d+)", text, re.M | re.S)
    if not found:
        return None, "it did not end"
    return found[1], None if found[2] == "0" else f"it ended with {found[2]}"


def tests_passed(name, text, chosen):
    """How many tests a program of tests passed, and why it failed, if it did: also where some were chosen and none ran."""
    printed, why = outcome(name, text)
    counted = re.findall(r"^test result: ok\. (\d+) passed", printed or "", re.M)
    passed = sum(map(int, counted))
    none = not counted or (chosen and not passed)
    return passed, why or ("no test ran" if none else None)


# A hundred and fifty programs with each sanitizer: each takes a second or two to start in emulation.
TOO_SLOW = {"cli-not_accounted": ["--skip", "programs_that_cannot_be_seen"]}


def tests_of(folder, architecture):
    """The tests of a package (its folder in crates/): the names of their files, each with the program that has it as a module, and
    what chooses its tests there. Those of a feature and those of other architectures are left out."""
    tests = {}
    for main in sorted((ROOT / "crates" / folder / "tests").glob("*/main.rs")):
        for condition, module in re.findall(r"^(?:#\[cfg\((.*)\)\]\n)?mod (\w+);", main.read_text(), re.M):
            elsewhere = "target_arch" in condition and f'"{architecture}"' not in condition
            file = main.parent / f"{module}.rs"
            has_tests = file.exists() and "#[test]" in file.read_text()
            if has_tests and not elsewhere and not condition.startswith("feature"):
                tests[module] = (main.parent.name, [f"{module}::"])
    return tests


def preload_tests(architecture):
    """The files of tests of the preloaded library. (Debian's packages here have no compiler for musl.)"""
    return sorted(tests_of("preload", architecture).keys() - {"musl"})


def asked(plan, names):
    """The parts of a plan that are named, or all of it. (What a line of it begins with is its name.)"""
    return [part for part in plan if not names or part[0] in names]


def refuse_unknown(parser, names, *plans):
    """Ends the command where a name is no part of any plan: what is not there would pass."""
    there = {part[0] for plan in plans for part in plan}
    for name in names:
        if name not in there:
            parser.error(f"there is no part {name!r}; there are {', '.join(sorted(there))}")
