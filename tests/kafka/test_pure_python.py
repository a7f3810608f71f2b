"""Where the C could not be compiled: everything works, and the consumer says that it is slower."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

WHY = (
    "from aiogroup._core.native.diagnosis import why_not_compiled as why; print(why().why if why() is not None else '')"
)
PROGRAM = """
import asyncio, sys
from aiogroup import Consumer

class Ears:
    def on_event(self, event):
        if event.name == "slow_decoder":
            print(event.why, flush=True)

async def main(servers, topic):
    async with Consumer(
        topic, bootstrap_servers=servers, group_id="pure", auto_offset_reset="earliest", observers=[Ears()]
    ) as consumer:
        async for record in consumer:
            print(record.offset, record.value.decode(), flush=True)
            if record.offset == 2:
                break
        await consumer.commit()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("chosen", ["1", ""])
async def test_python_in_place_of_the_c_is_reported_and_works(make_place, chosen):
    # Another process is asked, as this one may have been told itself not to use the C.
    environment = os.environ | {"AIOGROUP_PURE_PYTHON": chosen, "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WHY, env=environment, stdout=asyncio.subprocess.PIPE
    )
    why = (await asyncio.wait_for(asked.communicate(), 60))[0].decode().strip()
    assert not chosen or why == "AIOGROUP_PURE_PYTHON is set in the environment"
    first = [why] if why else []
    place = make_place()
    await place.produce(range(3))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, place.cluster.bootstrap_servers, place.topic),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    told = [line for line in out.decode().splitlines() if "event=" not in line]
    assert told == [*first, "0 0", "1 1", "2 2"]
