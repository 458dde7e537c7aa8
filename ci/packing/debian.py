"""Debian packages: the command, the shared library, and what programs are compiled with."""

import gzip
import os
import re
import shutil
import time

from . import stage
from .tools import AUTHORS, DEBIAN, HOME, MACHINE, MAIL, OUT, ROOT, SUMMARY, VERSION, LeftOut, call, check, epoch, fresh
from .tools import need, said, write

REVISION = f"{VERSION}-1"
LONG = """\
 Ledgerline accounts for memory in groups that form a tree (queries, tenants,
 threads, processes), and limits it, without root.
 ."""

CONTROL = {
    "ledgerline": ("utils", "same", f"""\
Description: account for the memory of programs, and limit it
{LONG}
 This package has the command: it runs programs under an account without
 recompiling them, and shows and steers ledgers of programs that run. It also
 has ledgerline-lab, which says where the fields of types fall on cache lines
 and what that costs.
"""),
    "libledgerline1": ("libs", "same", f"""\
Multi-Arch: same
Description: {SUMMARY}
{LONG}
 This package has the shared library for programs in C and C++.
"""),
    "libledgerline-dev": ("libdevel", "same", f"""\
Multi-Arch: same
Description: {SUMMARY} (development files)
{LONG}
 This package has the header files for C and C++, the static library, and the
 file for pkg-config.
"""),
}


def contents(multiarch):
    """What goes where: package -> [(below the tree, below /)]."""
    libraries = f"usr/lib/{multiarch}"
    return {
        "ledgerline": [
            ("bin/ledgerline", "usr/bin/ledgerline"),
            ("bin/ledgerline-lab", "usr/bin/ledgerline-lab"),
            ("share/man/man1", "usr/share/man/man1"),
            ("share/bash-completion", "usr/share/bash-completion"),
            ("share/fish", "usr/share/fish"),
            ("share/zsh/site-functions", "usr/share/zsh/vendor-completions"),
            ("share/doc/ledgerline/README.md", "usr/share/doc/ledgerline/README.md"),
        ],
        "libledgerline1": [
            ("lib/libledgerline.so.1", f"{libraries}/libledgerline.so.1"),
            ("lib/libledgerline.so.1.0.0", f"{libraries}/libledgerline.so.1.0.0"),
        ],
        "libledgerline-dev": [
            ("include", "usr/include"),
            ("lib/libledgerline.a", f"{libraries}/libledgerline.a"),
            ("lib/libledgerline.so", f"{libraries}/libledgerline.so"),
        ],
    }


def packed(text):
    """As Debian has documents: packed as tightly as can be, without a name or a time."""
    return gzip.compress(text if isinstance(text, bytes) else text.encode(), 9, mtime=0)


def copyright():
    """Who holds it, and every licence that is linked in."""
    mit = "".join(f" {line}".rstrip() + "\n" if line else " .\n" for line in
                  (ROOT / "LICENSE-MIT").read_text().split("\n\n", 2)[2].strip().split("\n"))
    return f"""\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ledgerline
Source: {HOME}
Comment: The packages that are linked in, with their licences, are listed in
 /usr/share/doc/<this package>/THIRD-PARTY.gz.

Files: *
Copyright: 2026 {AUTHORS}
License: Expat or Apache-2.0

License: Expat
{mit}
License: Apache-2.0
 On Debian systems, the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""


def changelog():
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch()))
    return f"""\
ledgerline ({REVISION}) unstable; urgency=medium

  * Release {VERSION}; /usr/share/doc/<package>/changelog.gz says what changed.

 -- {AUTHORS} <{MAIL}>  {when}
"""


def needed(name, files, work, own):
    """The packages that a package's programs and libraries need, as dpkg-shlibdeps finds them."""
    write(work / "debian/control", f"Source: ledgerline\n\nPackage: {name}\nArchitecture: any\n")
    words = ["dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{own}", *[f"-e{file}" for file in files]]
    return re.search(r"shlibs:Depends=(.*)", call(*words, cwd=work))[1]


def build(tree):
    """Builds the three packages; returns their files."""
    need("dpkg-deb:dpkg", "dpkg-shlibdeps:dpkg-dev", "dpkg-architecture:dpkg-dev", "lintian")
    if MACHINE not in DEBIAN:
        raise LeftOut(f"Debian's word for {MACHINE} is not known here")
    multiarch = call("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    work, made = fresh(OUT / "debian"), []
    for name, moves in contents(multiarch).items():
        root = work / name
        for source, target in moves:
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            source = tree / source
            if source.is_dir():
                shutil.copytree(source, root / target)
            else:
                shutil.copy(source, root / target, follow_symlinks=False)
        for page in root.glob("usr/share/man/man1/*.1"):
            write(page.with_name(page.name + ".gz"), packed(page.read_bytes()))
            page.unlink()
        documents = root / "usr/share/doc" / name
        write(documents / "copyright", copyright())
        write(documents / "changelog.Debian.gz", packed(changelog()))
        write(documents / "changelog.gz", packed((ROOT / "CHANGELOG.md").read_bytes()))
        write(documents / "THIRD-PARTY.gz", packed((tree / "share/doc/ledgerline/THIRD-PARTY").read_bytes()))
        depends = {"ledgerline": lambda: needed(name, (root / "usr/bin").iterdir(), work, tree / "lib")}
        control = root / "DEBIAN"
        if name == "libledgerline1":
            depends[name] = lambda: needed(name, root.glob("usr/lib/*/*.so.1.0.0"), work, tree / "lib")
            write(control / "shlibs", f"libledgerline 1 libledgerline1 (>= {VERSION})\n")
            write(control / "triggers", "activate-noawait ldconfig\n")
        if name == "libledgerline-dev":
            depends[name] = lambda: f"libledgerline1 (= {REVISION})"
            config = (tree / "lib/pkgconfig/ledgerline.pc").read_text()
            config = config.replace("${pcfiledir}/../..", "/usr")
            config = config.replace("${prefix}/lib", f"${{prefix}}/lib/{multiarch}")
            write(root / f"usr/lib/{multiarch}/pkgconfig/ledgerline.pc", config)
        for path in stage.files(root):
            if not path.is_symlink():
                path.chmod(0o644 if path.suffix in (".1", ".0") or ".so." in path.name else stage.mode(path))
        finish(name, root, depends[name]())
        file = work / f"{name}_{REVISION}_{DEBIAN[MACHINE]}.deb"
        environment = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch()))
        call("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, file, env=environment)
        made.append(file)
    return made


def finish(name, root, depends):
    """The control file and the sums."""
    section, _, description = CONTROL[name]
    files = [path for path in stage.files(root) if path.is_file() and not path.is_symlink()]
    plain = [path for path in files if "DEBIAN" not in path.parts]
    size = sum(-(-path.stat().st_size // 1024) for path in plain)
    sums = call("md5sum", *[path.relative_to(root) for path in plain], cwd=root)
    write(root / "DEBIAN/md5sums", sums)
    write(root / "DEBIAN/control", f"""\
Package: {name}
Source: ledgerline
Version: {REVISION}
Architecture: {DEBIAN[MACHINE]}
Maintainer: {AUTHORS} <{MAIL}>
Installed-Size: {size}
Depends: {depends}
Section: {section}
Priority: optional
Homepage: {HOME}
{description}""")


def lint(files):
    """Lintian finds no error; its warnings are told."""
    words = ["lintian", "--no-cfg", "--fail-on", "error", "--pedantic", *files]
    if os.geteuid() == 0:
        words.insert(1, "--allow-root")
    told = call(*words).strip()
    said(told or "lintian: nothing to say")
    said(f"lintian: no error in {len(files)} packages")
