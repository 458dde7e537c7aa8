"""The programs of docs/python.md do what it says."""

import pathlib
import re
import runpy

import pytest

GUIDE = pathlib.Path(__file__).parents[3] / "docs/python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.S | re.M)


@pytest.mark.parametrize("program", [program for program in PROGRAMS if "served.py" not in program])
def test_a_program_of_the_guide_runs(run, program):
    assert run(program).strip()


def test_the_server_of_the_guide_refuses_the_large_report_alone(tmp_path):
    pytest.importorskip("fastapi")
    from test_doors import requests_at_once

    [program] = [program for program in PROGRAMS if "served.py" in program]
    (tmp_path / "served.py").write_text(program)
    app = runpy.run_path(str(tmp_path / "served.py"))["app"]
    answers = requests_at_once(app, ["/report/1000", "/report/10000000", "/report/1000"])
    assert [status for status, _ in answers] == [200, 507, 200]
    assert answers[1][1] == "this request needs more memory than it may use: the limit is 64.0M\n"
