"""A page of your own, on another origin, that uploads files to Weighbridge. Standard library only.

    WEIGHBRIDGE_CORS_ORIGINS=http://127.0.0.1:8090 weighbridge up
    weighbridge keys create --name embed --scope upload
    UPLOADS_TO=http://127.0.0.1:8080 UPLOADS_WITH=wb_… python examples/embed/serve.py

The key stays here. The browser gets a token that can only upload, and is valid for fifteen minutes.
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
        """Returns a token. Check first who asks for it, as your site does. Uploads cannot override these fields."""
        fields = {"seconds": 900, "pipeline": "auto"}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310
            f"{WEIGHBRIDGE}/api/tokens", json.dumps(fields).encode(), headers
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            self.answer(answer.status, "application/json", answer.read())

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
