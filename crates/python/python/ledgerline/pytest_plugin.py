"""Limits and an account for tests: ``@pytest.mark.memory("50M")``, ``--memory-limit``, ``--memory-report``.

pytest loads it by itself. Without a mark and without an option it does nothing.
"""

import pytest

_PEAKS = pytest.StashKey[list]()
# An account without a limit is made on the first request for one, since most runs make none.


def pytest_addoption(parser):
    options = parser.getgroup("memory", "memory of tests (ledgerline)")
    options.addoption("--memory-limit", metavar="SIZE", help="fail each test that allocates more at a time, as 512M; a mark has precedence")
    options.addoption(
        "--memory-report", metavar="N", type=int, nargs="?", const=10, default=0, help="list the N tests with the highest peaks [10]"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "memory(limit): fail the test with GroupFull if it allocates more at a time, as '50M' (ledgerline)")
    config.stash[_PEAKS] = []
    given = config.getoption("--memory-limit")
    if given is not None:
        _check(given, pytest.UsageError)


def _check(given, error):
    """Says in words that a size makes no sense, before a test runs."""
    from ledgerline import _ledgerline

    try:
        return _ledgerline._size(given)
    except (TypeError, ValueError) as wrong:
        raise error(f"memory limit {given!r}: {wrong}") from None


def _limit_of(item):
    mark = item.get_closest_marker("memory")
    if mark is None:
        return item.config.getoption("--memory-limit")
    if len(mark.args) != 1 or mark.kwargs:
        raise pytest.UsageError(f'{item.nodeid}: the mark takes one size: @pytest.mark.memory("50M")')
    _check(mark.args[0], lambda words: pytest.UsageError(f"{item.nodeid}: {words}"))
    return mark.args[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    limit, report = _limit_of(item), item.config.getoption("--memory-report")
    if limit is None and not report:
        return (yield)
    import ledgerline

    # The function is called inside, in this very context, and nothing else is.
    with ledgerline.limit(limit, name=item.name, below="/tests") as group:
        try:
            return (yield)
        finally:
            item.config.stash[_PEAKS].append((group.peak, group.max, item.nodeid))


def pytest_terminal_summary(terminalreporter, config):
    wanted = config.getoption("--memory-report")
    peaks = sorted(config.stash.get(_PEAKS, []), key=lambda peak: -peak[0])[:wanted]
    if not peaks:
        return
    from ledgerline._ledgerline import _format

    terminalreporter.section(f"largest tests ({len(peaks)})")
    for peak, limit, name in peaks:
        of = f" of {_format(limit)}" if limit is not None else ""
        terminalreporter.write_line(f"{_format(peak):>8}{of}  {name}")
