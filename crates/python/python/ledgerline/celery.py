"""Limits for tasks of Celery.

    app = Celery("jobs", task_cls="ledgerline.celery:Task")

    @app.task(memory_limit="200M")
    def render(document): ...

A task that runs into its limit fails with :class:`TaskFull`, which Celery retries or stores as any other error, and the worker goes on. (A
:class:`MemoryError` ends a worker of Celery, so it is none.) It works in pools of processes, of threads, and in ``solo``.
"""

import celery

import ledgerline


class TaskFull(Exception):
    """A task needed more memory than its limit, or a limit above it, allows. It has the fields of :class:`ledgerline.GroupFull`."""

    def __init__(self, group, limit, requested, usage):
        super().__init__(group, limit, requested, usage)
        self.group, self.limit, self.requested, self.usage = group, limit, requested, usage

    def __str__(self):
        return str(ledgerline.GroupFull(*self.args))


class Task(celery.Task):
    """A task with a group of its own for each call, below ``/celery``."""

    abstract = True
    #: The limit of a call: bytes, or a text like ``"200M"``; None for none.
    memory_limit = None
    #: The group that the groups of calls lie below.
    memory_group = "/celery"

    def __call__(self, *arguments, **named):
        if self.memory_limit is None:
            return super().__call__(*arguments, **named)
        try:
            with ledgerline.limit(self.memory_limit, name=self.name or "task", below=self.memory_group):
                return super().__call__(*arguments, **named)
        except ledgerline.GroupFull as full:
            raise TaskFull(full.group, full.limit, full.requested, full.usage) from None
