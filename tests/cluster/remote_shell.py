# SPDX-License-Identifier: Apache-2.0
"""What ssh and its daemon are to mpirun on a real cluster, without keys, over the cluster's own network.

    remote_shell.py --serve ENVIRONMENT   runs what it is told, with the environment in that file (NAME=VALUE in each line)
    remote_shell.py HOST COMMAND...       runs the command there: a shell reads it; output and exit code are the command's

As with ssh, what runs on a host is no child of who asked for it, and a host that cannot be reached is told after a while."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

PORT = 22
PATIENCE = 3  # seconds, for a host to answer
END = b"\0exit "  # before the exit code, behind all output


def serve_one(connection, environment):
    with connection:
        connection.sendall(b"ready\n")
        command = connection.makefile("rb").readline().decode().rstrip("\n")
        variables = dict(line.split("=", 1) for line in Path(environment).read_text().splitlines())
        base = {"HOME": "/", "PATH": os.environ["PATH"], "TMPDIR": "/dev/shm"}
        ended = subprocess.run(["sh", "-c", command], cwd="/", env={**base, **variables}, stdin=subprocess.DEVNULL,
                               stdout=connection, stderr=connection)
        try:
            connection.sendall(END + str(ended.returncode % 256).encode())
        except OSError:
            pass  # nobody listens any more


def serve(environment):
    with socket.create_server(("0.0.0.0", PORT)) as door:
        print("ready", flush=True)
        while True:
            threading.Thread(target=serve_one, args=(door.accept()[0], environment), daemon=True).start()


def ask(host, command):
    try:
        connection = socket.create_connection((host, PORT), timeout=PATIENCE)
        if connection.recv(6) != b"ready\n":
            raise OSError("it does not answer")
    except OSError as error:
        print(f"remote_shell: connect to host {host}: {error}", file=sys.stderr)
        return 255
    connection.settimeout(None)
    connection.sendall(command.encode() + b"\n")
    rest = b""
    while piece := connection.recv(1 << 16):
        rest += piece
        shown = max(0, len(rest) - 16) if END not in rest else rest.index(END)
        sys.stderr.buffer.write(rest[:shown])
        sys.stderr.flush()
        rest = rest[shown:]
    return int(rest.removeprefix(END)) if rest.startswith(END) else 255


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1] == "--serve" else ask(sys.argv[1], " ".join(sys.argv[2:])))
