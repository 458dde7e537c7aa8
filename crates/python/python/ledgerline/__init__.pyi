from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar

from ledgerline._ledgerline import Entered as Entered
from ledgerline._ledgerline import Group as Group
from ledgerline._ledgerline import Size
from ledgerline._ledgerline import __version__ as __version__
from ledgerline._ledgerline import current as current
from ledgerline._ledgerline import group as group
from ledgerline._ledgerline import root as root

P = ParamSpec("P")
R = TypeVar("R")

class GroupFull(MemoryError):
    group: str | None
    limit: int | None
    requested: int | None
    usage: int | None
    def __init__(
        self, group: str | None = None, limit: int | None = None, requested: int | None = None, usage: int | None = None
    ) -> None: ...

class limit:
    group: Group | None
    def __init__(self, max: Size, *, high: Size = None, name: str = "limit", below: Group | str | None = None) -> None: ...
    def __enter__(self) -> Group: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]: ...

def limited(
    max: Size, *, high: Size = None, name: str | None = None, below: Group | str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def inherit(function: Callable[P, R]) -> Callable[P, R]: ...
def announce(name: str | None = None) -> str: ...

class ThreadPoolExecutor(futures.ThreadPoolExecutor): ...
