"""FastStream's `KafkaBroker` on aiogroup's consumer: `from aiogroup.faststream import KafkaBroker`.

The extra `aiogroup[faststream]` brings FastStream. Nothing else of aiogroup imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiogroup.faststream.errors import FastStreamMissingError

if TYPE_CHECKING:
    from aiogroup.faststream.broker import KafkaBroker
    from aiogroup.faststream.consumer import StreamConsumer

__all__ = ["FastStreamMissingError", "KafkaBroker", "StreamConsumer"]

if not TYPE_CHECKING:  # with a `__getattr__` a type checker would accept every name

    def __getattr__(name: str) -> Any:  # noqa: ANN401 (a class)
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            import faststream.kafka  # noqa: F401, PLC0415 (it may be missing)
        except ImportError as error:
            raise FastStreamMissingError(
                "aiogroup.faststream needs FastStream 0.7: pip install 'aiogroup[faststream]'"
            ) from error
        from aiogroup.faststream import broker, consumer  # noqa: PLC0415 (they import FastStream)

        return getattr(broker if name == "KafkaBroker" else consumer, name)
