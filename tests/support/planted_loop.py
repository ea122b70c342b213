"""An event loop whose time stands still until a test moves it."""

import asyncio


class PlantedLoop(asyncio.SelectorEventLoop):
    """Its time is moved by whoever has it."""

    now_s = 100.0

    def time(self) -> float:
        """The planted time."""
        return self.now_s


async def turns(number: int) -> None:
    """Let the loop turn so many times: everything that is ready runs."""
    for _ in range(number):
        await asyncio.sleep(0)
