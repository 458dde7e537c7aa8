"""A memory limit and an account for each request, task, cell and test of a process.

    import ledgerline

    tenant = ledgerline.group("/acme", max="512M")
    with tenant.enter():
        rows = load()              # charged to /acme, and refused beyond 512 MiB
    print(tenant.current, tenant.peak)

    @ledgerline.limited("64M")     # each call has 64 MiB of its own, below the current group
    async def render(request): ...

Each block has a known owner: ``current`` is the sum of the sizes of the blocks that a group's code allocated and that still
live. At a limit the code that is too large gets a :class:`MemoryError` and leaves its group as :class:`GroupFull`; the process, and
whatever else runs in it, goes on.

The group belongs to the context (:mod:`contextvars`): tasks of asyncio have that in which they were made, and so have functions
that :func:`asyncio.to_thread` runs. Other threads begin with none: :func:`inherit` and :class:`ThreadPoolExecutor` take it along.

Not seen are the memory that a library in C takes from ``malloc`` itself, memory maps, and all that exists before the first
group is entered. ``docs/python.md`` has the list.
"""

from ledgerline import _supported
from ledgerline._ledgerline import Entered, Group, __version__, current, group, root
from ledgerline._full import GroupFull
from ledgerline._process import announce
from ledgerline._limited import ThreadPoolExecutor, inherit, limit, limited

__all__ = [
    "Entered",
    "Group",
    "GroupFull",
    "ThreadPoolExecutor",
    "announce",
    "current",
    "group",
    "inherit",
    "limit",
    "limited",
    "root",
]
