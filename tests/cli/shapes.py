"""The JSON documents of version 1: which fields they have, of which types. docs/cli.md has the same names."""

from __future__ import annotations

NUMBER, TEXT, FLAG = int, str, bool
SUMS = {
    "lag": (NUMBER, None),
    "ahead_count": (NUMBER, None),
    "left_count": (NUMBER, None),
    "per_second": (float, None),
    "left_ms": (NUMBER, None),
}
NODE = {"node_id": NUMBER, "host": TEXT, "port": NUMBER}
PLACE = {"topic": TEXT, "partition": NUMBER}
MEMBER = {"name": (TEXT, None), "member_id": TEXT, "client_id": TEXT, "host": TEXT}
TEXT_OF = {"value": (TEXT, None), "value_encoding": (TEXT, None)}
SHAPES = {
    "groups": {
        "groups": [
            {
                "group": TEXT,
                "state": (TEXT, None),
                "protocol": (TEXT, None),
                "protocol_type": (TEXT, None),
                "members_count": (NUMBER, None),
                "coordinator": NODE,
            }
        ]
    },
    "describe": {
        "group": TEXT,
        "state": (TEXT, None),
        "protocol": (TEXT, None),
        "protocol_type": (TEXT, None),
        "assignor": (TEXT, None),
        "members_count": NUMBER,
        "lag": (NUMBER, None),
        "coordinator": (NODE, None),
        "partitions": [
            {
                **PLACE,
                "current_offset": (NUMBER, None),
                "log_end_offset": (NUMBER, None),
                "lag": (NUMBER, None),
                "member": (MEMBER, None),
                "token": (
                    {"is_usable": FLAG, "pending_count": NUMBER, "ahead_count": NUMBER},
                    {"is_usable": FLAG, "why": TEXT},
                    None,
                ),
            }
        ],
        "idle_members": [MEMBER],
    },
    "lag": {
        "group": TEXT,
        "state": (TEXT, None),
        "at_ms": NUMBER,
        "total": SUMS,
        "topics": [{"topic": TEXT, **SUMS}],
        "partitions": [{**PLACE, "current_offset": (NUMBER, None), "log_end_offset": (NUMBER, None), **SUMS}],
    },
    "ranges": {
        "group": TEXT,
        "partitions": [
            {
                **PLACE,
                "low_water_mark": NUMBER,
                "live": (NUMBER, None),
                "pending": ([[NUMBER]], None),
                "pending_count": (NUMBER, None),
                "ahead_count": (NUMBER, None),
                "is_left_to_jobs": FLAG,
                "is_usable": FLAG,
                "why_not": (TEXT, None),
            }
        ],
    },
    "tail": {
        **PLACE,
        "offset": NUMBER,
        "timestamp_ms": NUMBER,
        "key": (TEXT, None),
        "key_encoding": (TEXT, None),
        **TEXT_OF,
        "headers": [{"name": TEXT, **TEXT_OF}],
    },
    "reset": {
        "group": TEXT,
        "is_executed": FLAG,
        "refusals": [TEXT],
        "partitions": [
            {
                **PLACE,
                "old_offset": (NUMBER, None),
                "new_offset": NUMBER,
                "repeated_count": (NUMBER, None),
                "skipped_count": (NUMBER, None),
                "error": (TEXT, None),
            }
        ],
    },
    "members list": {"group": TEXT, "members": [{**MEMBER, "partitions": [PLACE]}]},
    "members remove": {"group": TEXT, "removed": [{**MEMBER, "partitions": [PLACE]}]},
}


def fits(value, shape):
    """Whether a value has the shape: a type, the fields of an object, a list of one shape, or one of several."""
    if shape is None:
        return value is None
    if isinstance(shape, tuple):
        return any(fits(value, each) for each in shape)
    if isinstance(shape, dict):
        return isinstance(value, dict) and value.keys() == shape.keys() and all(fits(value[k], shape[k]) for k in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    return type(value) is shape or (shape is float and type(value) is int)


def check(document):
    """Fail unless the document is one of version 1."""
    command = document["command"]
    assert fits(document, {"command": str, "version": int, **SHAPES[command]}), document
    assert document["version"] == 1


def names_in(shape):
    """Every field's name, at any depth."""
    if isinstance(shape, dict):
        for name, inner in shape.items():
            yield name
            yield from names_in(inner)
    elif isinstance(shape, list | tuple):
        for inner in shape:
            yield from names_in(inner)
