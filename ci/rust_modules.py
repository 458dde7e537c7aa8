"""Reads the modules of a Rust crate and draws the arrows between them, for `ci/imports`.

This is no compiler. It reads paths: those of `use` declarations, those in the code, bodies of macros included, and
those in attributes, where a string may hold one as well (`#[serde(with = "super::hex")]`). It follows names that are
imported, re-exported or come by a glob, as far as the crate's own modules go. It does not know types, so it does
not see which module a method belongs to.
"""

import collections
import os
import re
import sys

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<block>/\*)
      | (?P<raw>[bc]?r(?P<hash>\#*)".*?"(?P=hash))
      | (?P<string>[bc]?"(?:\\.|[^"\\])*")
      | (?P<char>b?'(?:\\u\{[^}]*\}|\\x..|\\.|[^\\'])')
      | (?P<lifetime>'\w+)
      | (?P<name>(?:r\#)?[A-Za-z_]\w*)
      | (?P<number>\d\w*(?:\.\d\w*)?)
      | (?P<sign>::|.)""",
    re.VERBOSE | re.DOTALL,
)

Token = collections.namedtuple("Token", "kind text line")
TESTS = {"test"}  # the cfg names that mean that something is tested
ITEMS = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"}
STARTS = ITEMS | {"impl", "mod", "use", "let", "if", "match"}
# The values of attributes that are not code, even if they look like code.
TEXTS = {"name", "path", "reason", "note", "expected", "rename", "alias", "value_name", "default_value", "feature"}
TEXTS |= {"about", "help", "long_about", "long_help", "before_help", "after_help"}
BETWEEN = {"as", "const", "dyn", "for", "impl", "mut", "where"}  # the words that stand beside a name in code
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


def tokens(source):
    """The names and signs of a source file; comments are left out."""
    found, at, line = [], 0, 1
    while at < len(source):
        match = TOKEN.match(source, at)
        end = match.end()
        if match.lastgroup == "block":
            depth = 1
            while depth and end < len(source):
                pair = source[end : end + 2]
                depth += {"/*": 1, "*/": -1}.get(pair, 0)
                end += 2 if pair in ("/*", "*/") else 1
        elif match.lastgroup != "space":
            text = match.group()
            found.append(Token(match.lastgroup, text[2:] if text.startswith("r#") else text, line))
        line += source.count("\n", at, end)
        at = end
    return found


def matching(stream, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(stream)):
        if stream[place].kind == "sign":
            depth += 1 if stream[place].text in OPEN else -1 if stream[place].text in CLOSE else 0
            if not depth:
                return place
    return len(stream) - 1


def end_of_value(stream, at):
    """The place of the comma, or of the closing bracket, after what begins at `at` in an attribute."""
    while at < len(stream) and stream[at].text != "," and stream[at].text not in CLOSE:
        at = matching(stream, at) + 1 if stream[at].text in OPEN else at + 1
    return at


def code_of(string):
    """The names and signs of a string that may hold code; none where two words in a row show that it is prose."""
    text = string.text.lstrip("bcr#").rstrip("#")[1:-1]
    inside = [Token(token.kind, token.text, token.line + string.line - 1) for token in tokens(text)]
    for one, other in zip(inside, inside[1:]):
        if one.kind == other.kind == "name" and not BETWEEN & {one.text, other.text}:
            return []
    return inside


def end_of_item(stream, at):
    """The place after the item, field or arm that begins at `at`, attributes included."""
    comma = True
    while at < len(stream):
        # A comma ends a field, but not an item with two type parameters.
        comma = comma and stream[at].text not in STARTS
        text = stream[at].text if stream[at].kind == "sign" else ""
        if text == ";" or (text == "," and comma):
            return at + 1
        if text in OPEN:
            at = matching(stream, at)
            if text == "{":
                return at + 1
        elif text in CLOSE:
            return at
        at += 1
    return at


def holds_without_tests(predicate):
    """What a cfg predicate says when nothing is tested: True, False, or None where that is not known."""
    words = [t.text for t in predicate]

    def term(at):
        word = words[at]
        if at + 1 < len(words) and words[at + 1] == "(":
            values, at = [], at + 2
            while words[at] != ")":
                value, at = term(at)
                values.append(value)
                at += words[at] == ","
            if word == "not":
                return (None if values[0] is None else not values[0]), at + 1
            if word == "all":
                return (False if False in values else None if None in values else True), at + 1
            return (True if True in values else None if None in values else False), at + 1
        at += 1
        while at < len(words) and words[at] not in (",", ")"):
            at += 1
        return (False if word in TESTS else None), at

    return term(0)[0] if words else None


class Module:
    def __init__(self, path, file):
        self.path = path  # the names from the crate's root
        self.file = file
        self.children = set()
        self.items = set()
        self.uses = collections.defaultdict(list)  # a name in scope: the paths that it stands for
        self.globs = []
        self.paths = []  # (segments, line, what follows) as the source spells them
        self.outside = []  # (file, line): sources of other crates that it compiles


class Crate:
    """The modules of a crate, from its root file, and the arrows between them."""

    def __init__(self, root):
        self.folder = os.path.dirname(root)
        self.modules = {}
        self.parts = []  # each module as often as it is written: one may have a body for each system
        self.files = set()  # all that it is made of, also where two files are one module on different systems
        self.macros = {}
        self.read((), root, self.folder)
        self.arrows = collections.defaultdict(lambda: collections.defaultdict(set))
        for module in self.parts:
            self.follow(module)

    # ---- reading

    def read(self, path, file, folder):
        """Reads a module's file; the files of its children lie in `folder`."""
        self.files.add(file)
        with open(file, encoding="utf-8") as source:
            self.scan(Module(path, file), tokens(source.read()), folder)

    def scan(self, module, stream, folder):
        other = self.modules.setdefault(module.path, module)
        module.children, module.items, module.uses, module.globs = other.children, other.items, other.uses, other.globs
        self.parts.append(module)
        at, depth, shifted, others, attributes = 0, 0, None, [], []
        while at < len(stream):
            kind, text, line = stream[at]
            after = stream[at + 1].text if at + 1 < len(stream) else ""
            if text == "#" and (after == "[" or after == "!"):
                opens = at + 1 + (after == "!")
                closes = matching(stream, opens)
                inside = stream[opens + 1 : closes]
                words = [t.text for t in inside[:2]]
                if words == ["cfg", "("] and holds_without_tests(inside[2:-1]) is False:
                    if after == "!":
                        self.files.discard(module.file)
                        return
                    at = end_of_item(stream, closes + 1)
                    shifted, others, attributes = None, [], []
                    continue
                if words == ["path", "="]:
                    shifted = inside[2].text.strip('"')
                if words == ["cfg_attr", "("] and [t.text for t in inside[-4:-2]] == ["path", "="]:
                    other = os.path.join(os.path.dirname(module.file), inside[-2].text.strip('"'))
                    others.append(os.path.normpath(other))
                if after == "!":
                    self.attribute(module, inside)
                else:
                    attributes.append(inside)
                at = closes + 1
                continue
            # Only here is it known that none of them makes the item test-only.
            for inside in attributes:
                self.attribute(module, inside)
            attributes = []
            if kind == "sign" and text in OPEN:
                depth += 1
            elif kind == "sign" and text in CLOSE:
                depth -= 1
            elif kind == "name" and text == "mod" and stream[at + 2].text in (";", "{"):
                at = self.child(module, stream, at, folder, shifted)
                for other in others:
                    self.read(module.path + (after,), other, os.path.join(os.path.dirname(other), after))
                shifted, others = None, []
                continue
            elif kind == "name" and text == "use" and after != "<":
                end = at + 1
                while stream[end].text != ";":
                    end = matching(stream, end) + 1 if stream[end].text in OPEN else end + 1
                self.imports(module, stream[at + 1 : end], [])
                at = end
            elif kind == "name" and text in ITEMS and not depth:
                name = stream[at + 2] if text == "macro_rules" or after == "mut" else stream[at + 1]
                if name.kind == "name" and name.text not in ITEMS | {"unsafe", "extern"}:
                    module.items.add(name.text)
                if text == "macro_rules":
                    self.macros[name.text] = module.path
            elif kind == "name":
                at = self.spelled(module, stream, at)
            at += 1

    def spelled(self, module, stream, at, value=False):
        """Takes in the path that begins at `at`; returns the place of its last name.

        The bare name of an attribute's `value` is no variable.
        """
        before, line, segments = [t.text for t in stream[max(at - 2, 0) : at]], stream[at].line, [stream[at].text]
        while at + 2 < len(stream) and stream[at + 1].text == "::" and stream[at + 2].kind == "name":
            segments.append(stream[at + 2].text)
            at += 2
        # After one dot a name is a member; after two the path is the end of a range, or the rest of a struct.
        member = before[-1:] == ["."] and before != [".", "."]
        if not member and before[-1:] not in (["::"], ["fn"]) and (before[-1:] != ["$"] or segments[0] == "crate"):
            follows = stream[at + 1].text if at + 1 < len(stream) else ""
            follows = "(" if value and follows != "!" else follows
            module.paths.append((segments, line, follows))
        return at

    def attribute(self, module, inside):
        """Takes in the paths of an attribute: those of its values, and those that it spells without a key."""
        at = 0
        while at < len(inside):
            start, text = at, inside[at].text
            if inside[at].kind == "name":
                while at + 2 < len(inside) and inside[at + 1].text == "::" and inside[at + 2].kind == "name":
                    at += 2
                after = inside[at + 1].text if at + 1 < len(inside) else ""
                if text in ("doc", "cfg"):
                    at = end_of_value(inside, at) - 1
                elif text == "cfg_attr" and after == "(":
                    # The commas between the condition and the attributes are read like any others.
                    condition = end_of_value(inside, at + 2)
                    tested = holds_without_tests(inside[at + 2 : condition]) is False
                    at = matching(inside, at + 1) if tested else condition
                elif after == "=":
                    ends = end_of_value(inside, at + 2)
                    value = inside[at + 2 : ends]
                    if [t.kind for t in value] not in (["string"], ["raw"]):
                        self.values(module, value, bare=True)
                    elif text not in TEXTS:
                        self.values(module, code_of(value[0]), bare=False)
                    at = ends
                elif at > start:
                    self.spelled(module, inside, start)
            at += 1

    def values(self, module, stream, bare):
        """Takes in the paths of an attribute's value. A `bare` name may be one too; in a string it may be a text."""
        at = 0
        while at < len(stream):
            if stream[at].kind == "name":
                at = self.spelled(module, stream, at, value=bare)
            at += 1

    def child(self, module, stream, at, folder, shifted):
        """Reads the module that is declared at `at`; returns the place after it."""
        name = stream[at + 1].text
        module.children.add(name)
        path = module.path + (name,)
        if stream[at + 2].text == "{":
            closes = matching(stream, at + 2)
            inner = Module(path, module.file)
            self.scan(inner, stream[at + 3 : closes], os.path.join(folder, name))
            return closes + 1
        if shifted:
            file = os.path.normpath(os.path.join(os.path.dirname(module.file), shifted))
            if os.path.relpath(file, self.folder).startswith(".."):
                module.outside.append((file, stream[at].line))
            self.read(path, file, os.path.join(os.path.dirname(file), name))
            return at + 3
        for file in (os.path.join(folder, name + ".rs"), os.path.join(folder, name, "mod.rs")):
            if os.path.exists(file):
                self.read(path, file, os.path.join(folder, name))
                return at + 3
        sys.exit(f"{module.file}:{stream[at].line}: no file for the module {name}")

    def imports(self, module, tree, above):
        """Takes in a `use` tree: each leaf becomes a path and a name in scope."""
        segments, at = list(above), 0
        while at < len(tree):
            kind, text, line = tree[at]
            if text == "{":
                part, depth = [], 0
                for token in tree[at + 1 : matching(tree, at)] + [Token("sign", ",", line)]:
                    depth += (token.text == "{") - (token.text == "}")
                    if token.text == "," and not depth:
                        if part:
                            self.imports(module, part, segments)
                        part = []
                    else:
                        part.append(token)
                return
            if text == "*":
                module.globs.append(segments)
                module.paths.append((segments, line, "*"))
                return
            if text == "as":
                break
            if text == "$":
                if tree[at + 1].text != "crate":
                    # A variable of a macro: the rest of the path is unknown, and so is the name that it imports.
                    if segments:
                        module.paths.append((segments, line, ";"))
                    return
            elif text == "::":
                if not segments:
                    return  # a name of another crate
            elif text != "self" or not segments:
                segments.append(text)
            at += 1
        name = tree[at + 1].text if at < len(tree) else segments[-1]
        module.uses[name].append(segments)
        module.paths.append((segments, tree[-1].line, ";"))

    # ---- resolving

    def find(self, where, name, seen):
        """What `name` means in the module `where`: (the module that defines it, whether it is a module itself)."""
        module = self.modules[where]
        if name in module.children:
            return where + (name,), True
        if (where, name) in seen:
            return None
        seen = seen | {(where, name)}
        for path in module.uses.get(name, ()):
            found = self.resolve(where, path, set(), seen)
            if found:
                return found
        if name in module.items or name in module.uses:
            return where, False
        for path in module.globs:
            # A glob of the module's own parent must not be asked for the parent's name by that name.
            target = self.resolve(where, path, set(), seen)
            if target and target[1] and target[0] != where:
                found = self.find(target[0], name, seen)
                if found:
                    return found
        if not where and name in self.macros:
            return self.macros[name], False
        return None

    def resolve(self, where, segments, named, seen=frozenset()):
        """As `find`, for a path. None: the path leads out of the crate. `named`: the modules on the way."""
        at, whole = 0, True
        if segments[0] == "crate":
            where, at = (), 1
        while at < len(segments) and segments[at] in ("self", "super"):
            where = where[:-1] if segments[at] == "super" else where
            at += 1
        first = at == 0
        for name in segments[at:]:
            found = self.find(where, name, seen)
            if not found:
                return None if first else (where, False)
            where, whole = found
            if not whole:
                break
            named.add(where)
            first = False
        return where, whole

    def follow(self, module):
        """Draws the arrows of a module's paths."""
        for segments, line, follows in module.paths:
            named = set()
            name = segments[0]
            if len(segments) == 1 and follows not in (";", "*"):
                # A bare name leads elsewhere only through a glob, or as a macro.
                if follows == "!" and name in self.macros:
                    named.add(self.macros[name])
                elif not module.globs or not (name[0].isupper() or follows in ("(", "!")):
                    continue
            target = self.resolve(module.path, segments, named)
            if target:
                named.add(target[0])
            for other in named:
                self.arrow(module, other, line)

    def arrow(self, module, other, line):
        """Draws one arrow, in the innermost folder that holds both ends."""
        path = module.path
        shared = 0
        while shared < min(len(path), len(other)) and path[shared] == other[shared]:
            shared += 1
        if shared < min(len(path), len(other)):
            place = (os.path.relpath(module.file), line)
            self.arrows[path[:shared]][path[shared], other[shared]].add(place)
