# SPDX-License-Identifier: Apache-2.0
"""A `ballast serve` that runs while tests ask it."""

import contextlib
import http.client
import json
import random
import signal
import socket
import subprocess
import tempfile
import urllib.parse

from in_folder import BALLAST


def free_port():
    """One that stays free: below those that the system gives to connections of other tests."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class RunningServer:
    """Started at a port that is free, if none is named; ended with its `with`."""

    def __init__(self, *arguments, cwd, port=0):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([BALLAST, "serve", *map(str, arguments), "--port", str(port)], cwd=cwd, text=True,
                                        stdout=subprocess.PIPE, stderr=self.errors)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(f"the server did not start: {self.said()}")
        self.port = urllib.parse.urlsplit(self.url).port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def stop(self, number=signal.SIGINT):
        """Asks it to end, and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    @contextlib.contextmanager
    def connection(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes) of one request."""
        with self.connection() as connection:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, body=data, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def json(self, path, body=None):
        """What a path answers, which must go well."""
        status, _, data = self.ask("GET" if body is None else "POST", path, body)
        if status != 200:
            raise AssertionError(f"{path}: {status} {data!r}")
        return json.loads(data)
