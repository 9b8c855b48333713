"""Authorisation of requests: token, host and method."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("127.0.0.1", "localhost", "[::1]")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI filter that passes reading requests with the token and a legal host name.

    Parameters
    ----------
    app
        Application behind the guard.
    token
        Token that permits reading.
    cookie
        Name of the cookie that holds the token.
    hosts
        Legal host names of requests, without a port, against DNS rebinding: a page whose name was rebound to this
        address sends its own name.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it to the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        answer = self._app if refusal is None else refusal

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if _name_of(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("This host name is not legal: see --allow-host.\n", 421)
        is_control = scope["method"] == "POST" and scope["path"].endswith(("/stop", "/labels"))
        if scope["method"] not in ("GET", "HEAD") and not is_control:
            return PlainTextResponse("The dashboard is read only.\n", 405, {"allow": "GET, HEAD"})
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("Requests from other sites are refused.\n", 403)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and given:
            if not is_same(given, self._token):
                return PlainTextResponse("Wrong token: open the address that this dashboard printed.\n", 403)
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            return Response(status_code=303, headers={"location": "/", "set-cookie": cookie})
        if not is_same(_cookie_in(headers.get("cookie", ""), self._cookie), self._token):
            return PlainTextResponse("Open the address that penstock dashboard printed.\n", 403)
        return None


def is_same(given: str, token: str) -> bool:
    """Return whether two tokens are equal, in constant time."""
    return secrets.compare_digest(given.encode(), token.encode())


def _name_of(host: str) -> str:
    """Return a Host header without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _cookie_in(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
