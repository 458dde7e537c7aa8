"""What is linked into the command and the libraries: packages, licences, their texts, a bill of materials."""

import functools
import hashlib
import json
import pathlib
import re
import tomllib
import uuid

from .tools import HOME, VERSION, WORKSPACES, Failed, call

TEXTS = re.compile(r"(?i)(licen[cs]e|copying|notice|unlicense|copyright)[^/]*")


# The commands and libraries in packages.
BROUGHT = ("ledgerline-cli", "ledgerline-capi", "ledgerline-lab")


@functools.cache
def metadata():
    """The packages of both workspaces, each once, and who needs whom in one or the other."""
    host = re.search(r"^host: (.*)$", call("rustc", "-vV"), re.M)[1]
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    packages, nodes = {}, {}
    for workspace in WORKSPACES:
        one = json.loads(call(*words, cwd=workspace))
        packages |= {package["id"]: package for package in one["packages"]}
        for node in one["resolve"]["nodes"]:
            nodes.setdefault(node["id"], node | {"deps": []})["deps"] += node["deps"]
    return {"packages": list(packages.values()), "resolve": {"nodes": list(nodes.values())}}


def linked(*roots):
    """The packages that some of the workspace are linked with, those included, in order; and who needs whom."""
    nodes = {node["id"]: node for node in metadata()["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata()["packages"]}
    todo = [package["id"] for package in packages.values() if package["name"] in roots]
    needs = {}
    while todo:
        one = todo.pop()
        if one not in needs:
            normal = [it for it in nodes[one]["deps"] if any(kind["kind"] is None for kind in it["dep_kinds"])]
            needs[one] = sorted({it["pkg"] for it in normal})
            todo += needs[one]
    return sorted((packages[one] for one in needs), key=lambda it: (it["name"], it["version"])), needs


def is_ours(package):
    return package["source"] is None


def texts(package):
    """The texts of a package's licence, as its authors wrote them."""
    folder = pathlib.Path(package["manifest_path"]).parent
    found = [path for path in folder.iterdir() if TEXTS.fullmatch(path.name) and path.is_file()]
    return [path.read_text(errors="replace").strip() for path in sorted(found)]


def notices():
    """One document: each package that is linked, and each text once, with the packages that bear it."""
    packages, _ = linked(*BROUGHT)
    others = [package for package in packages if not is_ours(package)]
    bearers = {}
    for package in others:
        for text in texts(package):
            bearers.setdefault(text, []).append(package)
    out = ["Ledgerline is linked with these packages, under these licences:", ""]
    out += [f"  {it['name']} {it['version']}: {it['license']}" for it in others]
    for text, them in sorted(bearers.items(), key=lambda it: it[1][0]["name"]):
        names = ", ".join(f"{it['name']} {it['version']}" for it in them)
        out += ["", "=" * 78, names, "=" * 78, "", text]
    return "\n".join(out) + "\n"


def spdx(expression):
    """A licence as SPDX spells it: older manifests have a slash for "OR"."""
    return re.sub(r"\s*/\s*", " OR ", expression)


def allowed(expression, accepted):
    """Whether a licence's expression leaves a choice that is accepted. "AND" binds more than "OR"."""
    words = re.findall(r"[()]|[^\s()]+", spdx(expression))

    def either():
        value = both()
        while words and words[0] == "OR":
            words.pop(0)
            other = both()
            value = value or other
        return value

    def both():
        value = one()
        while words and words[0] == "AND":
            words.pop(0)
            other = one()
            value = value and other
        return value

    def one():
        word = words.pop(0)
        if word == "(":
            value = either()
            words.pop(0)
            return value
        if words and words[0] == "WITH":
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in accepted

    value = either()
    if words:
        raise Failed(f"the licence {expression!r} cannot be read")
    return value


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def bill(epoch):
    """A bill of materials in CycloneDX's JSON. The same sources have the same bill."""
    packages, needs = linked(*BROUGHT)
    by_id = {package["id"]: package for package in packages}
    locks = [tomllib.loads((workspace / "Cargo.lock").read_text())["package"] for workspace in WORKSPACES]
    sums = {(it["name"], it["version"]): it.get("checksum") for lock in locks for it in lock}
    components = []
    for package in packages:
        component = {
            "type": "library",
            "bom-ref": reference(package),
            "name": package["name"],
            "version": package["version"],
            "description": package["description"],
            "licenses": [{"expression": spdx(package["license"])}],
            "purl": reference(package),
        }
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": stamp(epoch),
            "component": {"type": "application", "bom-ref": "ledgerline", "name": "ledgerline", "version": VERSION},
        },
        "components": components,
        "dependencies": [
            {"ref": reference(package), "dependsOn": [reference(by_id[one]) for one in needs[package["id"]]]}
            for package in packages
        ],
    }
    named = hashlib.sha256(json.dumps(bom, sort_keys=True).encode()).hexdigest()
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, HOME + named)}"
    return json.dumps(bom, indent=1, sort_keys=True) + "\n"


def stamp(epoch):
    import datetime

    return datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def tests():
    """What this file promises, on made-up licences."""
    accepted = {"MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"}

    def the_choice_must_be_accepted():
        for good in ("MIT", "GPL-3.0 OR MIT", "Apache-2.0/GPL-3.0", "(MIT OR GPL-3.0) AND Unicode-3.0",
                     "GPL-3.0 AND X OR MIT", "Apache-2.0 WITH LLVM-exception OR X"):
            assert allowed(good, accepted), good
        for bad in ("GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 AND (X OR MIT)", "MIT WITH X"):
            assert not allowed(bad, accepted), bad

    def what_cannot_be_read_is_refused():
        try:
            allowed("MIT ) MIT", accepted)
        except Failed:
            return
        raise AssertionError("it was read")

    return [the_choice_must_be_accepted, what_cannot_be_read_is_refused]
