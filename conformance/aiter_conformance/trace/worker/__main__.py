"""Serves calls: one JSON line in, one JSON line out. Nothing else of the harness talks to a release."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import sys
from typing import Any, TextIO


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer requests until there are no more."""

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message, separators=(",", ":")) + "\n")
        replies.flush()

    # A release makes hundreds of thousands of objects when it is imported, and torch many: looking for
    # garbage among them takes a fifth of the start. They stay, so they are left out of it later, too.
    gc.disable()
    from aiter_conformance.trace.worker.session import Session

    session = Session(json.loads(requests.readline()))
    gc.freeze()
    gc.enable()
    reply({"ready": session.facts})
    for line in requests:
        reply(session.answer(json.loads(line)))


def main() -> None:
    """Serve on standard input and output; what the release prints goes to standard error."""
    faulthandler.enable()
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, replies)
    replies.flush()
    os._exit(0)  # a release leaves threads and exit hooks of its own behind


if __name__ == "__main__":
    main()
