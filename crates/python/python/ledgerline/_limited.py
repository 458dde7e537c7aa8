"""Groups for the time of a call."""

import concurrent.futures
import contextvars
import functools
import inspect
import itertools
import traceback

from ledgerline import _ledgerline

_numbers = itertools.count(1)


class limit:
    """A context manager: a group of its own for a stretch of code, destroyed at its end.

        with ledgerline.limit("64M", name="import") as group:
            ...

    The group lies below the current one, or below `below` (a group or a path), so what it holds counts there, too. `max` is its limit
    (None: none, for the account alone). If what is inside runs into a limit, :class:`GroupFull` leaves the block, and the variables of the
    functions that ended with it are cleared, since a traceback would keep what they held.

    An object is entered once.
    """

    __slots__ = ("_max", "_high", "_name", "_below", "_entered", "group")

    def __init__(self, max, *, high=None, name="limit", below=None):
        self._max, self._high, self._name, self._below = max, high, name, below
        self._entered = self.group = None

    def __enter__(self):
        if self._entered is not None:
            raise RuntimeError("a limit is entered once: make one for each `with`")
        parent = self._below
        if parent is None:
            parent = _ledgerline.current() or _ledgerline.root()
        elif isinstance(parent, str):
            parent = _ledgerline.group(parent)
        if not parent.exists:
            raise RuntimeError("the group was destroyed")
        # A name has 56 bytes at most.
        label = self._name.replace("/", "_").encode()[-40:].decode(errors="ignore")
        name = f"{label}.{next(_numbers)}"
        self.group = parent.child(name, max=self._max, high=self._high)
        self._entered = self.group.enter()
        self._entered.__enter__()
        return self.group

    def __exit__(self, kind, error, trace):
        try:
            return self._entered.__exit__(kind, error, trace)
        finally:
            if error is not None and isinstance(error, MemoryError):
                traceback.clear_frames(trace)
            error = trace = None
            if self.group.exists:
                self.group.destroy()


def limited(max, *, high=None, name=None, below=None):
    """A decorator: each call of the function has a group of its own with this limit, below the current group.

    For functions, coroutine functions, generators and asynchronous generators. A generator is in its group while it runs, and its caller
    is not. See :class:`limit` for the arguments; `name` is the function's unless it is given.
    """

    def decorate(function):
        label = name or function.__qualname__

        def group_for_call():
            return limit(max, high=high, name=label, below=below)

        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def call(*arguments, **named):
                steps = _Steps(group_for_call())
                try:
                    with steps:
                        generator = function(*arguments, **named)
                    send, value = generator.asend, None
                    while True:
                        try:
                            with steps:
                                item = await send(value)
                        except StopAsyncIteration:
                            return
                        try:
                            send, value = generator.asend, (yield item)
                        except GeneratorExit:
                            with steps:
                                await generator.aclose()
                            raise
                        except BaseException as error:
                            send, value = generator.athrow, error
                finally:
                    steps.end()

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def call(*arguments, **named):
                steps = _Steps(group_for_call())
                try:
                    with steps:
                        generator = function(*arguments, **named)
                    send, value = generator.send, None
                    while True:
                        try:
                            with steps:
                                item = send(value)
                        except StopIteration as end:
                            return end.value
                        try:
                            send, value = generator.send, (yield item)
                        except GeneratorExit:
                            with steps:
                                generator.close()
                            raise
                        except BaseException as error:
                            send, value = generator.throw, error
                finally:
                    steps.end()

        elif inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*arguments, **named):
                with group_for_call():
                    return await function(*arguments, **named)

        else:

            @functools.wraps(function)
            def call(*arguments, **named):
                with group_for_call():
                    return function(*arguments, **named)

        return call

    return decorate


class _Steps:
    """The group of a generator, which is entered for each of its steps."""

    __slots__ = ("group", "_entered")

    def __init__(self, made):
        made.__enter__()
        made._entered.__exit__(None, None, None)
        self.group, self._entered = made.group, None

    def __enter__(self):
        self._entered = self.group.enter()
        self._entered.__enter__()

    def __exit__(self, kind, error, trace):
        try:
            return self._entered.__exit__(kind, error, trace)
        finally:
            if error is not None and isinstance(error, MemoryError):
                traceback.clear_frames(trace)
            error = trace = None

    def end(self):
        if self.group.exists:
            self.group.destroy()


def inherit(function):
    """Returns a function that runs in the context of where `inherit` was called, on whichever thread: for ``threading.Thread``, executors
    and callbacks. So what it allocates is charged to the group that is current here."""
    context = contextvars.copy_context()

    @functools.wraps(function)
    def call(*arguments, **named):
        # (A copy: a context is entered by one thread at a time.)
        return context.copy().run(function, *arguments, **named)

    return call


class ThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """An executor whose work runs in the group, and the context, of whoever submits it."""

    def submit(self, function, /, *arguments, **named):
        return super().submit(contextvars.copy_context().run, function, *arguments, **named)


limit.__module__ = "ledgerline"
limited.__module__ = "ledgerline"
inherit.__module__ = "ledgerline"
ThreadPoolExecutor.__module__ = "ledgerline"
