"""The classes that aiogroup shares with aiokafka: code that uses one of them works with both clients.

At run time these are aiokafka's own classes. But aiokafka ships no `py.typed`, so outside of this repository mypy takes
them for `Any`. For mypy the same fields are therefore declared in `_core/structs_for_checkers.py`, and the base
classes of aiogroup's errors in `_core/errors_for_mypy.py`. Other type checkers read aiokafka's sources, and so see
one `TopicPartition` in both clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["ConsumerRebalanceListener", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition", "aiokafka_errors"]

MYPY = False  # mypy, and no other type checker, takes a variable of this name for true
if MYPY:
    from aiogroup._core import errors_for_mypy as aiokafka_errors
    from aiogroup._core.structs_for_checkers import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
else:
    from aiokafka import errors as aiokafka_errors
    from aiokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:  # by aiokafka's sources a type checker would refuse callbacks that are async
    from aiogroup._core.structs_for_checkers import ConsumerRebalanceListener
else:
    from aiokafka.abc import ConsumerRebalanceListener
