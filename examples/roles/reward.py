"""The reward server, which judges each state. Standard library only."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer


class Rewards(BaseHTTPRequestHandler):
    """Answers GET /health, and a POST of states with a reward for each."""

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer the health check."""
        self._answer(b"ok")

    def do_POST(self) -> None:
        """Answer with the reward of each state."""
        states = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(json.dumps([2 * state + 1 for state in states]).encode())

    def log_message(self, *_: object) -> None:
        """Log no requests."""


HTTPServer(("", int(os.environ["MUSTER_ROLE_PORT"])), Rewards).serve_forever()
