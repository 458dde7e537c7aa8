"""Groups in a forked child."""

import os


FORKED = """
import os, gc, ledgerline, sys
group = ledgerline.group("/g", max="20M")
with group.enter():
    held = [bytes(1000) for _ in range(1000)]
before = group.current
child = os.fork()
if child == 0:
    ok = group.current == before
    held.clear()
    gc.collect()
    ok = ok and group.current < 5000
    try:
        with group.enter():
            kept = []
            while True:
                kept.append([len(kept)])
    except ledgerline.GroupFull as full:
        ok = ok and full.group == "/g"
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), group.current == before)
"""


def test_a_child_has_its_own_copy_of_the_groups(run):
    assert run(FORKED).split() == ["0", "True"]


def test_a_child_of_a_thread_raises_errors_in_its_only_thread(run):
    program = """
import os, threading, ledgerline
group = ledgerline.group("/g", max="4M")
def runaway():
    with group.enter():
        kept = []
        while True:
            kept.append([len(kept)])
def tried(work):
    try:
        work()
    except ledgerline.GroupFull:
        return 0
    return 1
codes = []
def thread():
    codes.append(tried(runaway))
    child = os.fork()
    if child == 0:
        code = tried(runaway)
        more = []
        other = threading.Thread(target=lambda: more.append(tried(runaway)))
        other.start()
        other.join()
        os._exit(code + sum(more) + (len(more) != 1))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
it = threading.Thread(target=thread)
it.start()
it.join()
print(codes)
"""
    assert run(program).strip() == "[0, 0]"


ANNOUNCED = """
import os, gc, ledgerline
path = ledgerline.announce("ledgerline-test")
group = ledgerline.group("/g")
with group.enter():
    held = [bytes(1000) for _ in range(1000)]
before = group.current
child = os.fork()
if child == 0:
    held.clear()
    gc.collect()
    own = ledgerline.group("/h", max="4M")
    ok = own.path.startswith("/python-")
    with own.enter():
        kept = [bytes(1000) for _ in range(1000)]
    ok = ok and 1_000_000 < own.current < 1_100_000
    try:
        with own.enter():
            while True:
                kept.append([len(kept)])
    except ledgerline.GroupFull as full:
        ok = ok and full.group == own.path
    del kept
    gc.collect()
    ok = ok and own.current < 100_000
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.path.exists(path), os.waitstatus_to_exitcode(status), group.current == before)
"""


def test_an_announced_ledger_is_shared_and_a_child_has_groups_below_a_row_of_its_own(run, tmp_path, monkeypatch):
    os.chmod(tmp_path, 0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(ANNOUNCED).split() == ["True", "0", "True"]


def test_announcing_comes_first_and_has_a_name(run, tmp_path, monkeypatch):
    os.chmod(tmp_path, 0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program = """
import ledgerline
try:
    ledgerline.announce("a name / with what no name has")
except ValueError as error:
    print("refused")
print(ledgerline.announce("orders"))
try:
    ledgerline.announce("again")
except RuntimeError as error:
    print(error)
"""
    refused, path, again = run(program).splitlines()
    assert refused == "refused" and "orders" in path and "before the first group" in again
