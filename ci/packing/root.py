"""A root that packages are tried in: a minimal Debian of its own, or a throw-away copy of this machine's.

Both are overlays whose changes lie in memory and go with the last process. Mounts are private to a namespace."""

import os
import shutil

from .tools import OUT, Failed, LeftOut, call, need, said

SUITE = "bookworm"
# Added to the smallest Debian: a compiler for C programs, a reader of manuals, and completions.
WITH = "gcc,libc6-dev,pkg-config,man-db,bash-completion"
CLEAN = OUT / "root"

ENTER = r"""
set -eu
lower=$1 packages=$2 script=$3
top=$(mktemp -d); trap 'umount -l "$top"; rmdir "$top"' EXIT
mount -t tmpfs tmpfs "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$top/upper,workdir=$top/work" "$top/root"
mount -t proc proc "$top/root/proc"
mount --bind /dev "$top/root/dev"
mkdir -p "$top/root/tmp/packages"
cp "$packages"/* "$top/root/tmp/packages"
chmod 755 "$top/root/tmp/packages"
chroot "$top/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    sh "/tmp/packages/$script" /tmp/packages
"""


def clean():
    """A minimal Debian, made once and kept."""
    if (CLEAN / "usr/bin/bash").exists():
        return CLEAN
    need("debootstrap")
    shutil.rmtree(CLEAN, ignore_errors=True)
    part = CLEAN.with_name("root.part")
    shutil.rmtree(part, ignore_errors=True)
    said(f"making a minimal Debian {SUITE} (minutes)")
    try:
        call("debootstrap", "--variant=minbase", f"--include={WITH}", SUITE, part)
    except Failed as why:
        shutil.rmtree(part, ignore_errors=True)
        raise LeftOut(f"a minimal Debian cannot be had: {str(why).splitlines()[-1]}") from why
    part.rename(CLEAN)
    return CLEAN


def can_be_made():
    if os.geteuid() != 0:
        raise LeftOut("roots are made by the superuser alone")
    need("unshare:util-linux", "chroot:coreutils")
    try:
        call("unshare", "--mount", "sh", "-c", "t=$(mktemp -d); mount -t tmpfs tmpfs $t; umount $t; rmdir $t")
    except Failed as why:
        raise LeftOut("this machine lets nobody mount") from why


def run(lower, packages, script):
    """Runs a script of the folder `packages` within; returns what it printed."""
    words = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh", lower, packages, script]
    return call(*words)
