import itertools
import subprocess
import sys

import pytest

import ledgerline

numbers = itertools.count(1)


@pytest.fixture
def tenant():
    """A group of its own, without a limit."""
    group = ledgerline.group(f"/test-{next(numbers)}")
    yield group
    if group.exists:
        group.destroy()


@pytest.fixture
def run():
    """Runs a program in a Python of its own, and returns what it printed."""

    def run(program, *arguments, code=0):
        command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
