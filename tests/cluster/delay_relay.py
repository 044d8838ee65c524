# SPDX-License-Identifier: Apache-2.0
"""delay_relay.py SECONDS NEAR FAR NAMESPACE: a cable that takes its time, since this kernel has no netem.

Makes two TAP devices: NEAR here, and FAR in the network namespace of this file. What goes into one comes out of the other
SECONDS later. Says "ready" once both are there. SIGHUP ends the delay, SIGUSR1 begins it again."""

import ctypes
import fcntl
import os
import select
import signal
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x2, 0x1000, 0x40000000
MOST_FRAMES = 4096  # on their way; more are lost, as in a switch


def enter(path):
    with open(path) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


def make_tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def relay(ends, delay):
    ways = {ends[0]: (ends[1], deque()), ends[1]: (ends[0], deque())}
    while True:
        now = time.monotonic()
        for to, frames in ways.values():
            while frames and frames[0][0] <= now:
                try:
                    os.write(to, frames.popleft()[1])
                except OSError:
                    pass  # the device is down: the frame is lost
        next_due = min((frames[0][0] for _, frames in ways.values() if frames), default=now + 1)
        for end in select.select(ends, [], [], max(0, next_due - time.monotonic()))[0]:
            frames = ways[end][1]
            try:
                while True:
                    frame = os.read(end, 65536)
                    if len(frames) < MOST_FRAMES:
                        frames.append((time.monotonic() + delay["seconds"], frame))
            except OSError:
                pass  # nothing more, or the device is down


def main(seconds, near, far, namespace):
    delay = {"seconds": 0.0}
    signal.signal(signal.SIGUSR1, lambda *_: delay.update(seconds=float(seconds)))
    signal.signal(signal.SIGHUP, lambda *_: delay.update(seconds=0.0))
    ends = [make_tap(near)]
    enter(namespace)
    ends.append(make_tap(far))
    print("ready", flush=True)
    relay(ends, delay)


if __name__ == "__main__":
    main(*sys.argv[1:])
