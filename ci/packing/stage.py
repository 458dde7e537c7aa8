"""What all packages are made of, as it lies below a prefix: built, stripped, with its manual and completions."""

import os
import shutil

from . import linked
from .tools import OUT, ROOT, VERSION, Failed, call, check, fresh, need, said, write

COMMAND = ROOT / "target" / "release" / "ledgerline"
# The most bytes that the command may have, stripped.
LARGEST = 15_000_000
# Where shells look for completions: below the prefix, by shell.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/ledgerline",
    "zsh": "share/zsh/site-functions/_ledgerline",
    "fish": "share/fish/vendor_completions.d/ledgerline.fish",
}


def build(again):
    """Builds the command, or takes the one that lies there, and the libraries for C."""
    if again or not COMMAND.exists():
        said("building the command (a release build: minutes)")
        call("cargo", "build", "--release", "--locked", "--quiet", "-p", "ledgerline-cli", cwd=ROOT)
    else:
        said(f"taking {COMMAND.relative_to(ROOT)} as it is")
    printed = call(COMMAND, "--version").strip()
    check(printed == f"ledgerline {VERSION}", f"{COMMAND} is {printed}, and the workspace {VERSION}: build it anew")


def stage():
    """Makes the tree anew; returns its folder."""
    need("strip:binutils", "make", "cargo", "cc:gcc")
    tree = fresh(OUT / "tree")
    (tree / "bin").mkdir()
    shutil.copyfile(COMMAND, tree / "bin/ledgerline")
    call("strip", "--strip-all", tree / "bin/ledgerline")
    (tree / "bin/ledgerline").chmod(0o755)
    size = (tree / "bin/ledgerline").stat().st_size
    said(f"the command: {size / 1e6:.1f} MB stripped")
    check(size < LARGEST, f"the command has {size} bytes, and may have {LARGEST}")

    call(tree / "bin/ledgerline", "man", tree / "share/man/man1")
    for shell, file in COMPLETIONS.items():
        write(tree / file, call(tree / "bin/ledgerline", "completions", shell))

    install = ["make", "--silent", "-C", ROOT / "crates/capi", "install", f"DESTDIR={tree}", "PREFIX="]
    call(*install, env=dict(os.environ, CARGO_TERM_QUIET="true"))
    call("strip", "--strip-unneeded", *(tree / "lib").glob("libledgerline.so.*.*"))
    call("strip", "--strip-debug", "--enable-deterministic-archives", tree / "lib/libledgerline.a")
    # So that the folder may lie anywhere.
    config = tree / "lib/pkgconfig/ledgerline.pc"
    text = config.read_text()
    for name, old, new in [("prefix", "", "${pcfiledir}/../.."), ("includedir", "/include", "${prefix}/include"),
                           ("libdir", "/lib", "${prefix}/lib")]:
        if f"{name}={old}\n" not in text:
            raise Failed(f"{config} has no {name}={old}")
        text = text.replace(f"{name}={old}\n", f"{name}={new}\n", 1)
    write(config, text)

    documents = tree / "share/doc/ledgerline"
    for name in ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "docs/install.md"):
        write(documents / os.path.basename(name), (ROOT / name).read_bytes())
    write(documents / "THIRD-PARTY", linked.notices())
    return tree


def files(tree):
    """All that lies in a tree, folders included, in one order."""
    return sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).parts)


def mode(path):
    """A file's mode as packages have it, whatever the umask was."""
    return 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644


def example():
    """The program in C of crates/capi/README.md."""
    return (ROOT / "crates/capi/README.md").read_text().split("```c\n", 1)[1].split("```", 1)[0]
