"""The error of a group that is full."""

from ledgerline import _ledgerline


class GroupFull(MemoryError):
    """A limit of a group refused memory.

    group      the path of the group that is full: the current one or one above it
    limit      its limit, in bytes
    requested  how many bytes were asked for
    usage      how many were in use then

    It is a :class:`MemoryError`, and it can be pickled.
    """

    def __init__(self, group=None, limit=None, requested=None, usage=None):
        if group is None:
            # Python made it of the class alone, in the thread that was refused.
            group, limit, requested, usage = _ledgerline._last_refusal() or (None,) * 4
        self.group, self.limit, self.requested, self.usage = group, limit, requested, usage
        super().__init__(group, limit, requested, usage)

    def __str__(self):
        if self.group is None:
            return "a group is full"
        requested, usage, limit = map(_ledgerline._format, (self.requested, self.usage, self.limit))
        return f"{self.group} is full: {requested} requested, {usage} of max {limit} in use"

    def __reduce__(self):
        return type(self), (self.group, self.limit, self.requested, self.usage)


GroupFull.__module__ = "ledgerline"
