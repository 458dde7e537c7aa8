"""The Containerfile: no engine is needed to try its steps, of which there are few and plain ones."""

import shlex
import shutil

from . import root
from .tools import OUT, ROOT, Failed, check, fresh, said, write

FILE = ROOT / "Containerfile"
# The command that builds the command here, too.
BUILDS = "cargo build --profile dist --locked -p ledgerline-cli"
COMMAND = "/src/target/dist/ledgerline"


def steps():
    """The file's stages: [(name, [(instruction, rest)])]."""
    stages = []
    for line in FILE.read_text().replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            continue
        if word == "FROM":
            stages.append((rest.split(" AS ")[-1], []))
        else:
            stages[-1][1].append((word, rest.strip()))
    return stages


def try_it(tree, lower):
    """Follows the last stage within a root, with the command that was built here by the same call of cargo."""
    (_, building), (_, last) = steps()
    check(any(word == "RUN" and BUILDS in rest for word, rest in building), f"no stage of {FILE.name} calls {BUILDS}")
    folder, script, entry = fresh(OUT / "container"), ["set -eu", "cd /tmp/packages"], None
    for word, rest in last:
        if word == "COPY":
            source, target = [it for it in rest.split() if not it.startswith("--")]
            check(source == COMMAND, f"{FILE.name} copies {source}, which is not tried here")
            shutil.copyfile(tree / "bin/ledgerline", folder / "ledgerline")
            script.append(f"install -D -m 755 ledgerline {shlex.quote(target)}")
        elif word == "ENTRYPOINT":
            entry = eval(rest, {"__builtins__": {}})
        elif word == "LABEL":
            continue
        else:
            raise Failed(f"{FILE.name}: nobody has written how {word} is tried")
    called = shlex.join([*entry, "run", "--json", "account.json", "--account", "/dev/null", "--"])
    script.append(f"{called} sh -c 'echo within' | grep -qx within")
    script.append("""grep -q '"exit_code": *0' account.json""")
    write(folder / "steps.sh", "\n".join(script) + "\n")
    root.run(lower, folder, "steps.sh")
    said(f"{FILE.name}: its last stage, step by step in a root; no container engine built it")
