"""The parts that the ASGI and WSGI middleware share."""

import itertools

from ledgerline import _ledgerline
from ledgerline._full import GroupFull
from ledgerline._limited import limit

_numbers = itertools.count(1)


class Requests:
    """Groups for requests: `/requests/GET.17`, or `/acme/GET.17` for a tenant."""

    def __init__(self, max, tenant, max_tenant, status):
        for size in (max, max_tenant):
            _ledgerline._size(size)
        if tenant is not None and not callable(tenant):
            raise TypeError("tenant is a function that returns the tenant of a request, or None")
        if status not in (503, 507):
            raise ValueError("status is 507 or 503")
        self.max, self.tenant, self.max_tenant, self.status = max, tenant, max_tenant, status

    def begin(self, request, method):
        tenant = self.tenant(request) if self.tenant else None
        if tenant is None:
            below = _ledgerline.group("/requests")
        else:
            below = _ledgerline.root().child(str(tenant).replace("/", "_"))
            # Limits that an operator set by hand stay.
            if self.max_tenant is not None and below.max is None:
                below.max = self.max_tenant
        return limit(self.max, name=method, below=below)

    def line(self):
        return "503 Service Unavailable" if self.status == 503 else "507 Insufficient Storage"

    def headers(self, body):
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        return headers + ([("retry-after", "1")] if self.status == 503 else [])


def body_of(full):
    """Return the text for the client, which says nothing of other tenants."""
    if full is None or full.limit is None:
        return b"this request needs more memory than it may use\n"
    return f"this request needs more memory than it may use: the limit is {_ledgerline._format(full.limit)}\n".encode()


def full_in(error):
    """The refusal in an exception, in its causes or in a group of exceptions; None if there is none."""
    seen, todo = set(), [error]
    while todo:
        error = todo.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, GroupFull):
            return error
        todo += [error.__cause__, error.__context__, *(getattr(error, "exceptions", None) or ())]
    return None
