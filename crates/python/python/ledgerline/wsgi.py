"""WSGI middleware: a group for each request, and 507 for the one that is too large.

    app.wsgi_app = ledgerline.wsgi.Middleware(app.wsgi_app, max="256M")                  # Flask
    application = ledgerline.wsgi.Middleware(get_wsgi_application(), max="256M")         # Django
"""

import sys

from ledgerline._limited import _Steps
from ledgerline._web import Requests, body_of, full_in

__all__ = ["Middleware"]


class Middleware:
    """Runs each request in a group below its tenant's, and answers 507 (or 503) if it ran into a limit before its first bytes went out.

    max         the limit of a request (None: none of its own)
    tenant      a function of the environ that names the tenant; None for none
    max_tenant  the limit of each tenant that has none
    status      507 or 503
    """

    def __init__(self, app, *, max=None, tenant=None, max_tenant=None, status=507):
        self.app, self.requests = app, Requests(max, tenant, max_tenant, status)

    def __call__(self, environ, start_response):
        return _Response(self, environ, start_response)


class _Response:
    """The body of a response, each part of which is made in the request's group."""

    def __init__(self, middleware, environ, start_response):
        self.requests = middleware.requests
        self.start_response, self.started, self.sent, self.refused = start_response, None, False, False
        self.body = self.parts = None
        self.steps = _Steps(self.requests.begin(environ, environ.get("REQUEST_METHOD", "GET")))
        try:
            with self.steps:
                self.body = middleware.app(environ, self.start)
                self.parts = iter(self.body)
        except Exception as error:
            self.refuse(error)
        else:
            if self.is_500():
                self.refuse(None)

    def start(self, status, headers, exc_info=None):
        self.started = (status, headers, exc_info)
        return self.write

    def write(self, part):
        self.begin()
        return self.writes(part)

    def begin(self):
        if not self.sent:
            self.sent = True
            status, headers, exc_info = self.started
            arguments = (status, headers) + ((exc_info,) if exc_info else ())
            self.writes = self.start_response(*arguments)

    def is_500(self):
        """Whether the framework made a 500 of the refusal."""
        return not self.sent and self.started is not None and self.started[0].startswith("500") and self.steps.group.refused > 0

    def refuse(self, error):
        full = full_in(error)
        if error is not None and (full is None or self.sent):
            self.close()
            raise error
        body = body_of(full)
        self.started = (self.requests.line(), self.requests.headers(body), sys.exc_info() if error is not None else None)
        self.close()
        self.refused, self.parts = True, iter((body,))

    def __iter__(self):
        return self

    def __next__(self):
        if self.refused:
            self.begin()
            return next(self.parts)
        try:
            with self.steps:
                part = next(self.parts)
        except StopIteration:
            if self.started is not None:
                self.begin()
            raise
        except Exception as error:
            self.refuse(error)
            return next(self)
        if part and self.started is not None:
            self.begin()
        return part

    def close(self):
        body, self.body = self.body, None
        try:
            if hasattr(body, "close"):
                body.close()
        finally:
            self.steps.end()
