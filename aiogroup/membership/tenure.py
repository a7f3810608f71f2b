"""Whether the group's log knows the member id under which we have our static name.

A coordinator writes down who has a name when a round is decided. If it is lost between JoinGroup, where a member that
comes back is given a new id, and SyncGroup, the next one reads the old id from the log and refuses the new one as
fenced (ClassicGroup.validateMember). That is nobody's taking the name over: whoever comes without an id gets it again.
"""

from __future__ import annotations

__all__ = ["Tenure"]


class Tenure:
    def __init__(self) -> None:
        self.may_be_forgotten = False
        self._is_fresh = False  # the id was given, and no round was decided with it

    def on_joined(self, old_id: str, new_id: str) -> None:
        self._is_fresh |= old_id != new_id

    def on_undecided(self) -> None:
        """The coordinator was lost, or an answer, or one came of a coordinator that is on its way out or in."""
        self.may_be_forgotten |= self._is_fresh

    def begin_anew(self) -> None:
        """A round was decided, or the id is given up."""
        self._is_fresh = self.may_be_forgotten = False
