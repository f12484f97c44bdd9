"""A controller in finsy: loads the program and writes one entry."""

import asyncio
from pathlib import Path

import finsy as fy

OPTIONS = fy.SwitchOptions(p4info=Path("forward.p4info.txtpb"), p4blob=Path("forward.json"), device_id=1)


async def main() -> None:
    """Connect, load the program if it is not the one that runs, and insert the entry."""
    async with fy.Switch("s1", "127.0.0.1:9559", OPTIONS) as switch:
        entry = fy.P4TableEntry(
            "hosts", match=fy.Match(dst="02:00:00:00:00:02"), action=fy.Action("forward", port=2)
        )
        await switch.insert([entry])


asyncio.run(main())
