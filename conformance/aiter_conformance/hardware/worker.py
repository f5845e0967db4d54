"""The process that touches the device: ``python -m aiter_conformance.hardware.worker FD``.

It reads one JSON document from standard input (`Order`) and writes one JSON line to the file descriptor FD
before and after each input. Whatever AITER or the driver prints goes elsewhere. It may die at any point.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

from aiter_conformance.hardware.items import Item, parse_item

_PARENT_DEATH: Final = 1  # PR_SET_PDEATHSIG of prctl(2)


@dataclass(frozen=True)
class Order:
    """What a worker is to do.

    Attributes:
        items: Ids of the inputs, of one cell.
        subject: Name of the subject.
        aiter: Version of the AITER that is to be imported.
        device: ``cuda``, or ``cpu`` where the runner is simulated.
        build: Make each call once, to have AITER build; judge nothing.
        timed: Whether passing inputs are timed.
    """

    items: tuple[str, ...]
    subject: str
    aiter: str
    device: str
    build: bool = False
    timed: bool = True

    def to_json(self) -> str:
        """Return the order as JSON."""
        return json.dumps(asdict(self))


def order_from_json(text: str) -> Order:
    """Return the order that `Order.to_json` gave."""
    data = json.loads(text)
    return Order(**{**data, "items": tuple(data["items"])})


def main(descriptor: int) -> None:
    """Run the order on standard input."""
    os.set_inheritable(descriptor, False)  # whoever AITER starts must not hold the pipe open
    # Nothing is left on the device when the parent is killed.
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    order = order_from_json(sys.stdin.read())
    items = [parse_item(text) for text in order.items]

    def tell(event: str, **words: Any) -> None:
        os.write(descriptor, (json.dumps({"event": event, **words}) + "\n").encode())

    _run(order, items, tell)


def _run(order: Order, items: list[Item], tell: Any) -> None:
    user = {name: value for name, value in os.environ.items() if name.startswith("AITER_")}
    # What AITER reads at its import must be right before it; all items are of one cell.
    from aiter_conformance.hardware import execute

    os.environ.update(execute.variables_of(items[0].problem, user))
    from aiter_conformance import subjects
    from aiter_conformance.providers.hardware import RealAiter

    library = RealAiter.load(order.aiter)
    setting = execute.Setting(subjects.load_subject(order.subject), library, order.device, user)
    tell("ready")
    for item in items:
        tell("started", item=str(item))
        if order.build:
            attempt = execute.build_item(item, setting)
        else:
            attempt = execute.run_item(item, setting, timed=order.timed)
        tell("done", attempt=attempt.to_json())
        if attempt.kind.value == "crash":
            os._exit(0)  # the device's context is lost; a new process goes on


if __name__ == "__main__":
    main(int(sys.argv[1]))
