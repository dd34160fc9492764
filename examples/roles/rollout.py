"""A rollout worker: it samples states, and asks the reward server to judge each. Standard library only."""

import json
import os
import random
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

REWARD = os.environ["MUSTER_REWARD_ADDRESSES"].split(",")[0]


class Rollouts(BaseHTTPRequestHandler):
    """Answers a POST of weights with states and their rewards."""

    def do_POST(self) -> None:
        """Answer with sixteen samples."""
        self.rfile.read(int(self.headers["Content-Length"]))
        states = [random.uniform(-1, 1) for _ in range(16)]
        request = urllib.request.Request(f"http://{REWARD}/", json.dumps(states).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = json.dumps({"states": states, "rewards": json.load(answer)}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log no requests."""


server = HTTPServer(("", int(os.environ["MUSTER_ROLE_PORT"])), Rollouts)
print("rollout worker", os.environ["MUSTER_ROLE_INDEX"], "listens", flush=True)
server.serve_forever()
