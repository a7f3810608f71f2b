"""The members of a loop's group, as their coordinator describes them: asked for only while somebody looks."""

from __future__ import annotations

from typing import Final

from aiogroup._runtime.inside import Inside
from aiogroup._runtime.loop.clock import now_ms, timeout_ms
from aiogroup._runtime.net.group_link import GroupLink
from aiogroup.admin import described, members_of
from aiogroup.asgi.page.journal import fitting, plain, shown
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError

__all__ = ["Members"]

ASK_EVERY_MS: Final = 10_000
ANSWER_MS: Final = 5_000


class Members:
    """The members of one group, as old as `ASK_EVERY_MS` while somebody asks for them; as many as `most_chars` hold."""

    def __init__(self, most_chars: int) -> None:
        self.known: list[str] | None = None
        """Each as the text of a JSON object; `None` until the coordinator has answered."""
        self.left_out_count = 0
        self.error = ""
        self._most_chars = most_chars
        self._asked_at_ms: int | None = None

    def is_due(self) -> bool:
        """Whether the coordinator is to be asked now. The caller then does so."""
        now = now_ms()
        if self._asked_at_ms is not None and now - self._asked_at_ms < ASK_EVERY_MS:
            return False
        self._asked_at_ms = now
        return True

    async def ask(self, inside: Inside, config: ConsumerConfig, group_id: str) -> None:
        """Ask the coordinator. Why it did not answer is in `error`."""
        try:
            async with timeout_ms(ANSWER_MS):
                group = await described(GroupLink(config, inside.link), group_id)
        except (AiogroupError, TimeoutError) as error:
            self.error = str(error) or "the coordinator did not answer"
            return
        if isinstance(group, str):
            self.known, self.error = [], group
            return
        found = members_of(group)
        rows = (
            {
                "name": each.name,
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions_count": len(each.partitions),
                "partitions": plain([shown(tp) for tp in each.partitions]),
            }
            for each in found
        )
        self.known, self.error = fitting(rows, self._most_chars), ""
        self.left_out_count = len(found) - len(self.known)
