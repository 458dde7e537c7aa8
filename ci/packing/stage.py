"""What all packages are made of, as it lies below a prefix: built, stripped, with its manual and completions."""

import os
import shutil

from . import linked
from .tools import OUT, ROOT, VERSION, Failed, call, check, fresh, need, said, write

# The commands: the workspace of each, its package, and its largest size in bytes, stripped.
COMMANDS = {
    "ledgerline": (ROOT, "ledgerline-cli", 15_000_000),
    "ledgerline-lab": (ROOT / "lab", "ledgerline-lab", 15_000_000),
}
# The files from which shells read completions, below the prefix, by shell and command.
COMPLETIONS = {
    (shell, command): place.format(command)
    for shell, place in [
        ("bash", "share/bash-completion/completions/{}"),
        ("zsh", "share/zsh/site-functions/_{}"),
        ("fish", "share/fish/vendor_completions.d/{}.fish"),
    ]
    for command in COMMANDS
}


def built(command, profile):
    """Where cargo puts a command that it builds by a profile."""
    return COMMANDS[command][0] / "target" / profile / command


# The profile of the packed commands; `build` decides.
profile = "dist"


def build(again):
    """Builds the commands as they ship, or takes those that lie there."""
    global profile
    for profile in ["dist"] if again else ["dist", "release"]:
        if all(built(command, profile).exists() for command in COMMANDS):
            break
    else:
        profile = "dist" if again else "release"
    for command, (workspace, package, _) in COMMANDS.items():
        file = built(command, profile)
        if again or not file.exists():
            said(f"building {command} by the profile {profile}, which takes minutes")
            call("cargo", "build", "--profile", profile, "--locked", "--quiet", "-p", package, cwd=workspace)
        else:
            said(f"taking {file.relative_to(ROOT)} as it is")
        printed = call(file, "--version").strip()
        check(printed == f"{command} {VERSION}", f"{file} is {printed}, and the workspace {VERSION}: build it anew")


def stage():
    """Makes the tree anew, of the commands that were built; returns its folder."""
    need("strip:binutils", "make", "cargo", "cc:gcc")
    tree = fresh(OUT / "tree")
    (tree / "bin").mkdir()
    for command, (_, _, largest) in COMMANDS.items():
        file = tree / "bin" / command
        shutil.copyfile(built(command, profile), file)
        call("strip", "--strip-all", file)
        file.chmod(0o755)
        size = file.stat().st_size
        said(f"{command}: {size / 1e6:.1f} MB stripped, by the profile {profile}")
        check(profile != "dist" or size < largest, f"{command} has {size} bytes, and may have {largest}")
        call(file, "man", tree / "share/man/man1")
    for (shell, command), file in COMPLETIONS.items():
        write(tree / file, call(tree / "bin" / command, "completions", shell))

    install = ["make", "--silent", "-C", ROOT / "crates/capi", "install", f"DESTDIR={tree}", "PREFIX="]
    call(*install, env=dict(os.environ, CARGO_TERM_QUIET="true"))
    call("strip", "--strip-unneeded", *(tree / "lib").glob("libledgerline.so.*.*"))
    call("strip", "--strip-debug", "--enable-deterministic-archives", tree / "lib/libledgerline.a")
    # Makes the folder relocatable.
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
