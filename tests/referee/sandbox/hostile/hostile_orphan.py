"""Run as a program: a parent with a job under way, to be killed by the test. Prints, when it has begun,
the server's process id and its directory on the host."""

import os
import sys
import threading


def main(without: tuple[str, ...]) -> None:
    """Start a job that sleeps, say so, and wait for it."""
    from referee.zygote import Limits, Zygote

    with Zygote(preload=(), extra_path=(os.path.dirname(__file__),), without=without) as zygote:
        read, write = os.pipe()
        limits = Limits(seconds=600.0, memory_bytes=1 << 28, output_bytes=1 << 10)
        job = threading.Thread(target=lambda: zygote.run("hostile_resources:sleep", b"", limits=limits, fds=[write]), daemon=True)
        job.start()
        os.read(read, 6)
        print(zygote.pid, zygote._server.scratch if zygote._server else "", flush=True)
        job.join()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
