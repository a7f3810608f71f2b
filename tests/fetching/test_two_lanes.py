"""Two lanes of one partition: where a range ends, whose turn it is, and that neither stands still beside the other."""

from __future__ import annotations

import pytest

from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError


def mode(**settings):
    return ConsumerConfig.of(group_id="billing", enable_parallel_rebalance=True, **settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"parallel_share": 0}, "parallel_share=0: a number between 0 and 1"),
        ({"parallel_share": 1.0}, "parallel_share=1.0"),
        ({"parallel_share": "half"}, "parallel_share='half'"),
        ({"parallel_order": "sorted"}, "'unordered' or 'ordered'"),
        ({"parallel_order": "ordered", "parallel_handoff": True}, "choose one"),
        ({"parallel_order": "ordered"}, "not there yet"),
        ({"parallel_handoff": True}, "not there yet"),
        ({"parallel_group_id": "billing"}, "a group of its own"),
        ({"parallel_group_id": ""}, "a group of its own"),
        ({"parallel_min_backlog": 0}, "parallel_min_backlog=0"),
        ({"parallel_share": 0.01}, "must fit into each part"),
        ({"group_id": None}, "needs a group_id"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, why):
    with pytest.raises(ConfigError, match=why):
        ConsumerConfig.of(**{"group_id": "billing", "enable_parallel_rebalance": True, **settings})


def test_hand_off_without_the_mode_is_refused():
    with pytest.raises(ConfigError, match="needs enable_parallel_rebalance"):
        ConsumerConfig.of(group_id="billing", parallel_handoff=True)


def test_the_bound_on_what_is_buffered_is_divided():
    config = mode(parallel_share=0.25, max_buffered_bytes=40_000_000)
    assert (config.lane_buffer_bytes("live"), config.lane_buffer_bytes("catch-up")) == (30_000_000, 10_000_000)
    assert ConsumerConfig.of(max_buffered_bytes=40_000_000).lane_buffer_bytes("live") == 40_000_000
    assert mode().second_group_id == "billing.catchup"
    assert mode(parallel_group_id="jobs").second_group_id == "jobs"
