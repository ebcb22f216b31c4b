"""pottery, as a program of the protocol in ../README.md."""

import platform
import sys
import time
from importlib.metadata import version

from pottery import Redlock
from redis import Redis

masters = {Redis.from_url(f"redis://{master}") for master in sys.argv[2:]}
held = []


def lock(name, ttl, wait):
    redlock = Redlock(key=name, masters=masters, auto_release_time=ttl / 1000)
    if wait == 0:
        return redlock if redlock.acquire(blocking=False) else None
    return redlock if redlock.acquire(timeout=wait / 1000) else None


def count(name, ttl, millis, pause, path):
    end = time.monotonic() + millis / 1000
    acquired, failed, longest = 0, 0, 0
    while time.monotonic() < end:
        asked = time.monotonic()
        redlock = lock(name, ttl, 20_000)
        if redlock is None:
            failed += 1
            continue
        longest = max(longest, time.monotonic() - asked)
        with open(path) as file:
            number = int(file.read() or 0)
        time.sleep(0.001)
        with open(path, "w") as file:
            file.write(str(number + 1))
        acquired += 1
        try:
            redlock.release()
        except Exception:
            failed += 1
        time.sleep(pause / 1000)
    return f"counted {acquired} {failed} {longest * 1000:.0f}"


def answer(command, *words):
    if command == "lock":
        redlock = lock(words[0], int(words[1]), int(words[2]))
        if redlock is None:
            return "refused False"
        held.append(redlock)
        return "locked"
    if command == "unlock":
        held.pop().release()
        return "unlocked"
    if command == "count":
        return count(words[0], *map(int, words[1:4]), words[4])
    return "failed unknown command"


for master in masters:
    master.ping()
print(
    f"ready pottery {version('pottery')}, redis-py {version('redis')},",
    f"Python {platform.python_version()}",
    flush=True,
)
for line in sys.stdin:
    try:
        reply = answer(*line.split())
    except Exception as error:
        reply = f"failed {error!r}"
    print(reply.replace("\n", " "), flush=True)
