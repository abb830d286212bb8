"""A page of your own, on another origin, that hands files to Weighbridge. Standard library only.

    WEIGHBRIDGE_CORS_ORIGINS=http://127.0.0.1:8090 weighbridge up
    weighbridge keys create --name embed --scope upload
    UPLOADS_TO=http://127.0.0.1:8080 UPLOADS_WITH=wb_… python examples/embed/serve.py

The key stays here. What the browser gets is a token that may only upload, for fifteen minutes.
"""

import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WEIGHBRIDGE, KEY = os.environ["UPLOADS_TO"], os.environ["UPLOADS_WITH"]
KINDS = {"page.html": "text/html; charset=utf-8", "page.js": "text/javascript", "page.css": "text/css"}
POLICY = (
    f"default-src 'none'; script-src 'self' {WEIGHBRIDGE}; connect-src 'self' {WEIGHBRIDGE}; style-src 'self'"
)


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.removeprefix("/") or "page.html"
        if name not in KINDS:
            return self.send_error(404)
        text = Path(__file__).with_name(name).read_text().replace("WEIGHBRIDGE", WEIGHBRIDGE)
        return self.answer(200, KINDS[name], text.encode())

    def do_POST(self) -> None:
        """A token. Ask first who it is for, as your site does; what is said here, no file may say otherwise."""
        wish = {"seconds": 900, "pipeline": "auto"}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        asked = urllib.request.Request(  # noqa: S310
            f"{WEIGHBRIDGE}/api/tokens", json.dumps(wish).encode(), headers
        )
        with urllib.request.urlopen(asked) as told:  # noqa: S310
            self.answer(told.status, "application/json", told.read())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for header in (
            ("Content-Type", kind),
            ("Content-Security-Policy", POLICY),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    site = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8090"))), Page)
    print(f"listens on http://127.0.0.1:{site.server_port}", flush=True)
    site.serve_forever()
