"""A limit for a cell of a notebook, and a line that says what it took.

    %load_ext ledgerline.jupyter

    %%memory 2G
    frame = load()

A cell that runs into its limit ends with :class:`GroupFull`, and the kernel goes on.
"""

import sys
import traceback

import ledgerline
from ledgerline._ledgerline import _format

_count = 0


def memory(line, cell):
    """``%%memory SIZE`` runs the cell with that limit; without a size it has none. Prints the peak, and what is kept."""
    global _count
    from IPython import get_ipython

    size = line.strip() or None
    ledgerline._ledgerline._size(size)
    _count += 1
    entered, shell, errors = ledgerline.group(f"/cells/{_count}", max=size), get_ipython(), []
    # The traceback is formatted once the group is left: there may be no room for it inside.
    shell.showtraceback = lambda *arguments, **named: errors.append(sys.exc_info()[1])
    try:
        with entered.enter():
            shell.run_cell(cell)
            if errors and isinstance(errors[0], MemoryError):
                raise errors[0]
    except MemoryError as error:
        traceback.clear_frames(error.__traceback__)
        errors = [error]
    finally:
        del shell.showtraceback
    for error in errors:
        if error is not None:
            shell.showtraceback((type(error), error, error.__traceback__))
    # The shell keeps the traceback for its debugger, and so what functions held.
    if errors and isinstance(errors[0], MemoryError):
        sys.last_value = sys.last_traceback = sys.last_exc = None
    del errors
    peak, kept = entered.peak, entered.current
    of = f" of {_format(entered.max)}" if entered.max is not None else ""
    refused = ", refused" if entered.refused else ""
    print(f"memory: peak {_format(peak)}{of}, {_format(kept)} kept{refused}")
    if kept == 0:
        entered.destroy()


def load_ipython_extension(shell):
    """Registers ``%%memory``."""
    shell.register_magic_function(memory, magic_kind="cell")
