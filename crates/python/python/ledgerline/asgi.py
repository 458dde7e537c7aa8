"""ASGI middleware: a group for each request, and 507 for the one that is too large.

    app.add_middleware(ledgerline.asgi.Middleware, max="256M", tenant=lambda scope: scope["path"].split("/")[1])   # Starlette, FastAPI
    app = ledgerline.asgi.Middleware(app, max="256M")                                                          # any other
"""

from ledgerline._full import GroupFull
from ledgerline._web import Requests, body_of, full_in

__all__ = ["Middleware"]


class Middleware:
    """Runs each request in a group below its tenant's, and answers 507 (or 503) if it ran into a limit and has answered nothing yet.

    max         the limit of a request (None: none of its own)
    tenant      a function of the scope that names the tenant; None for none
    max_tenant  the limit of each tenant that has none
    status      507 or 503

    A connection of a websocket is one request. Tasks that outlive their request stay in its group, which has ended by then: what
    they allocate is charged to the tenant.
    """

    def __init__(self, app, *, max=None, tenant=None, max_tenant=None, status=507):
        self.app, self.requests = app, Requests(max, tenant, max_tenant, status)

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        answer = _Answer(self.requests, scope, send)
        try:
            with self.requests.begin(scope, scope.get("method", "WEBSOCKET")) as group:
                answer.group = group
                await self.app(scope, receive, answer.send)
        except Exception as error:
            full = full_in(error)
            if full is None or not await answer.refuse(full):
                raise


class _Answer:
    """The messages that an application sends. A 500 of a request that was refused memory becomes the refusal: frameworks make one of any error."""

    def __init__(self, requests, scope, send):
        self.requests, self.is_http, self.to, self.group = requests, scope["type"] == "http", send, None
        self.began = self.replaced = False

    async def send(self, message):
        if self.replaced:
            return
        if message["type"] == "http.response.start" and message["status"] == 500 and self.group.refused:
            await self.refuse(None)
            return
        self.began = self.began or message["type"] in ("http.response.start", "websocket.accept")
        await self.to(message)

    async def refuse(self, full):
        """Answers, and says whether that was possible: nothing else was answered."""
        if self.replaced:
            return True
        if self.began or not self.is_http:
            return False
        self.began = self.replaced = True
        body = body_of(full)
        headers = [(name.encode(), value.encode()) for name, value in self.requests.headers(body)]
        await self.to({"type": "http.response.start", "status": self.requests.status, "headers": headers})
        await self.to({"type": "http.response.body", "body": body})
        return True
