"""A tarball of the tree, its bill of materials, and the sums of both: the same input makes the same bytes."""

import gzip
import hashlib
import io
import os
import tarfile

from . import linked, stage
from .tools import MACHINE, OUT, VERSION, call, check, documented, epoch, fresh, need, said, write

NAME = f"ledgerline-{VERSION}-{MACHINE}-linux-gnu"


def tarball(tree):
    """The tree as a tarball, as bytes. Nothing in it says who made it, when, or where."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in stage.files(tree):
            entry = tarfile.TarInfo(f"{NAME}/{path.relative_to(tree)}")
            entry.mtime = epoch()
            entry.mode = stage.mode(path)
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
                tar.addfile(entry)
            elif path.is_dir():
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=epoch()) as file:
        file.write(out.getvalue())
    return packed.getvalue()


def build(tree):
    folder = fresh(OUT / "tarball")
    write(folder / f"{NAME}.tar.gz", tarball(tree))
    write(folder / f"{NAME}.cdx.json", linked.bill(epoch()))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    write(folder / "SHA256SUMS", "".join(sums))
    said(f"tarball: {(folder / f'{NAME}.tar.gz').stat().st_size / 1e6:.1f} MB")
    return folder


def try_it(folder, tree):
    """Two builds are equal, under whatever umask; the sums hold; what was unpacked works where it lies."""
    need("tar", "sha256sum:coreutils", "pkg-config", "cc:gcc")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    before = os.umask(0o077)
    try:
        build(stage.stage())
    finally:
        os.umask(before)
    again = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in first:
        check(first[name] == again.get(name), f"two builds of {name} differ")
    home = fresh(OUT / "unpacked")
    call("sh", "-c", documented("tarball"), cwd=folder, env=dict(os.environ, HOME=str(home)))
    below = home / ".local"
    printed = call(below / "bin/ledgerline", "run", "--json", "-", "--account", "/dev/null", "--", "true")
    check('"exit_code":0' in printed.replace(" ", ""), f"run from the tarball printed {printed!r}")
    printed = call(below / "bin/ledgerline", "layout", "--help")
    check("Usage: ledgerline-lab layout" in printed, f"layout --help from the tarball printed {printed!r}")
    environment = dict(os.environ, PKG_CONFIG_PATH=str(below / "lib/pkgconfig"))
    flags = call("pkg-config", "--cflags", "--libs", "ledgerline", env=environment).split()
    write(below / "example.c", stage.example())
    call("cc", below / "example.c", *flags, "-o", below / "example")
    printed = call(below / "example", env=dict(os.environ, LD_LIBRARY_PATH=str(below / "lib")))
    check(" is full: " in printed, f"the program in C printed {printed!r}")
    path = f"{below / 'bin'}:{os.environ['PATH']}"
    call("sh", "-c", documented("cargo"), env=dict(os.environ, HOME=str(home), PATH=path))
    said("tarball: two builds are equal; sums, the command, pkg-config and a program in C from where it was unpacked")
