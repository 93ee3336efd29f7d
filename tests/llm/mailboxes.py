"""A provider with short times, requests for it, and what may be in its folder."""

import asyncio
import contextlib
import json

from mkevolve_core.llm.providers.mailbox import MailboxProvider
from mkevolve_core.llm.settings import ProviderSettings, RoleSettings
from mkevolve_core.llm.values import Expects, Request, Role

SETTINGS = ProviderSettings("people", "mailbox")
ROLE = RoleSettings(Role.GENERATE, "people", "")
SETTLE = 0.1  # seconds; the real one is 2

KERNEL = """Here it is.

```python
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
```
"""


def request(slot="4a#17", expects=Expects.KERNEL, role=Role.GENERATE, task="Write it.", **given):
    return Request(
        slot, role, "You write kernels.", "Device: H200.", task, "generate.j2 1f", expects, **given
    )


def provider(run, settle=SETTLE, poll=0.02):
    return MailboxProvider(SETTINGS, run / "mailbox", run.name, poll_seconds=poll, settle_seconds=settle)


async def asked(mailbox, what=None):
    """The task of one call, and its folder, once it is published and looked at."""
    what = what or request()
    task = asyncio.create_task(mailbox.once(what, ROLE, lambda text: None))
    await until(lambda: mailbox.is_waiting(what.slot) or task.done())
    return task, folder_of(mailbox, what)


def folder_of(mailbox, what):
    """The open folder of a request; it is the only one of its slot."""
    opened = mailbox._mailbox.open
    return next((one for one in opened.iterdir() if facts(one)["slot"] == what.slot), None)


def facts(folder):
    return json.loads((folder / "request.json").read_text())


def closing(run):
    """request id → closed.json, of all that is closed."""
    return {
        one.name: json.loads((one / "closed.json").read_text())
        for one in (run / "mailbox" / "closed").iterdir()
    }


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(run, **given):
    mailbox = provider(run, **given)
    try:
        yield mailbox
    finally:
        await mailbox.close()
