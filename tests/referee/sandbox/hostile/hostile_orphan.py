"""Run as a program: a parent with a job under way, to be killed by the test. Prints, when it has
begun, the server's process id and its directory on the host.
"""

import os
import sys
import threading


def main(without: tuple[str, ...]) -> None:
    """Start a job that sleeps, say so, and wait for it."""
    from referee.sandbox.zygote import Limits, Zygote

    with Zygote(preload=(), extra_path=(os.path.dirname(__file__),), without=without) as zygote:
        read, write = os.pipe()
        limits = Limits(seconds=600.0, memory_bytes=1 << 28, output_bytes=1 << 10)

        def run() -> None:
            zygote.run("hostile_resources:sleep", b"", limits=limits, fds=[write])
            # Whoever waits for the job to fall asleep must not wait for ever.
            os.write(write, b"ended!")

        job = threading.Thread(target=run, daemon=True)
        job.start()
        if os.read(read, 6) != b"asleep":
            raise SystemExit("the job ended before it slept")
        print(zygote.pid, zygote._server.scratch if zygote._server else "", flush=True)
        job.join()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
