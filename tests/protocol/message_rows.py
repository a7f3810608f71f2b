"""What aiogroup decides of Kafka's messages: which it speaks, in which versions, and where it departs from the schemas.

`message_tables.py` makes the tables of this and of the schemas.
"""

from __future__ import annotations

from typing import Any, Final

CLIENT: Final = {
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (2, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 4),
    "OffsetForLeaderEpoch": (2, 4),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ShareGroupHeartbeat": (1, 1),
    "ShareGroupDescribe": (1, 1),
    "ShareFetch": (1, 2),
    "ShareAcknowledge": (1, 2),
}
"""The lowest and the highest version of what a client needs, each in a module of `aiogroup/_core/protocol/messages/`. A
higher one that a new Kafka has is not spoken until it is written here.
"""

BROKER: Final = {
    "cluster": {
        "DescribeCluster": (0, 2),
        "DescribeTopicPartitions": (0, 0),
        "DescribeLogDirs": (1, 5),
        "ElectLeaders": (0, 2),
        "ListPartitionReassignments": (0, 0),
    },
    "configs": {
        "DescribeConfigs": (1, 4),
        "AlterConfigs": (0, 2),
        "IncrementalAlterConfigs": (0, 1),
        "ListConfigResources": (0, 1),
    },
    "groups": {"DeleteGroups": (0, 2), "OffsetDelete": (0, 0)},
    "produce": {"Produce": (3, 13)},
    "producer_ids": {"InitProducerId": (0, 5)},
    "records": {"DeleteRecords": (0, 2), "DescribeProducers": (0, 0)},
    "topics": {"CreateTopics": (2, 7), "DeleteTopics": (1, 6), "CreatePartitions": (0, 3)},
    # The versions after these belong to the second protocol of transactions (KIP-890).
    "transactions": {
        "AddPartitionsToTxn": (0, 3),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 4),
        "TxnOffsetCommit": (0, 4),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
    },
}
"""What a broker needs beside these: for each of its subjects a module in `aiogroup/embedded/messages/`."""

ABOUT: Final = {
    "Fetch": (
        "Asks for records; without `session_id` and `session_epoch` it is outside of any session (KIP-227). Topics are "
        "named by id since version 13: set both if both are known. Of the answer `error_code` is the session's, and "
        "`records` are slices of the frame, which they keep alive."
    ),
    "ListOffsets": (
        "Asks leaders for the offset that belongs to a time (milliseconds), or to a mark of `constants.py`; -1 if no "
        "record is that new. `isolation_level=1` makes the latest one the last stable offset."
    ),
    "Metadata": (
        "Asks for brokers and `topics`: None asks for all, an empty tuple for the brokers alone. A topic is asked for "
        "by name, or since version 12 by id with `name=None`, which is also the name of one that is unknown."
    ),
    "OffsetCommit": (
        "Stores offsets as a member of a generation, or with -1 and empty ids in a group without members. Topics are "
        "named by id since version 10: set both if both are known. An error of the group is repeated on all "
        "partitions."
    ),
    "OffsetFetch": (
        "Asks for the committed offsets of `groups`, up to version 7 of one; `topics=None` asks for everything that a "
        "group committed (since version 2), `require_stable` waits for transactions to end (KIP-447). Check a group's "
        "`error_code` first; version 1 has it on the partitions. An offset of -1: none is committed."
    ),
    "FindCoordinator": (
        "Asks which brokers coordinate the groups, or the transactional ids, of `coordinator_keys`; up to version 3 "
        "there must be exactly one, which the answer does not repeat. Each has an error of its own."
    ),
    "JoinGroup": (
        "Asks to be a member; a static one names its `group_instance_id` (KIP-345), a new one no `member_id`. Answered "
        "when all members have sent it; only the leader sees the members, and with `skip_assignment` it must not "
        "assign. The last two fields of the request belong to the draft of KIP-345 and are sent only where they are "
        "set; other brokers ignore them."
    ),
    "Heartbeat": "Keeps this member alive; the answer says whether the group is rebalancing.",
    "LeaveGroup": (
        "Takes `members` out of the group, by id, or a static one by its instance id alone; up to version 2 there must "
        "be exactly one, without an instance id, and the answer names no members."
    ),
    "SyncGroup": (
        "Asks for this member's assignment; `assignments` is for the leader. Since version 5 brokers compare protocols."
    ),
    "DescribeGroups": (
        "Asks the coordinator of these groups about them; another broker answers 16 for each. A missing group is in "
        "state `Dead` up to version 5, and has error 69 since version 6 (KIP-1043)."
    ),
    "ListGroups": (
        "Asks for the groups that a broker coordinates, in some states (KIP-518) or of some types (KIP-848) only; an "
        "empty filter lets all pass. A group with an empty `protocol_type` only commits."
    ),
    "ApiVersions": (
        "Asks which requests a broker supports, in which versions; the first request on every connection. It names the "
        "client since version 3 (KIP-511); brokers answer 42 to invalid characters in either field. One that does not "
        "know the version answers error 35 in version 0."
    ),
    "OffsetForLeaderEpoch": (
        "Asks leaders where epochs ended, which detects truncation (KIP-320): the end of the largest epoch not above "
        "the requested one; -1 and -1 if none is known."
    ),
    "ConsumerGroupHeartbeat": (
        "Joins (epoch 0), stays in, or leaves (-1, -2 for a static member) a group of the consumer protocol (KIP-848); "
        "null: as it was before."
    ),
    "ConsumerGroupDescribe": "Asks for groups of the consumer protocol (KIP-848).",
    "ShareGroupHeartbeat": "Joins (epoch 0), stays in, or leaves (-1) a share group (KIP-932); null: as it was before.",
    "ShareGroupDescribe": "Asks for share groups (KIP-932).",
    "ShareFetch": "Asks for records of a share group, in a share session (KIP-932), and acknowledges earlier ones.",
    "ShareAcknowledge": "Acknowledges records of a share group, in a share session (KIP-932).",
    "DescribeCluster": "Asks for the nodes (KIP-700); `endpoint_type` is 1 for brokers, 2 for controllers.",
    "DescribeTopicPartitions": "Asks for partitions in pages (KIP-966); `next_cursor` is null on the last.",
    "DescribeLogDirs": "Asks one node for the sizes of logs; null `topics` stand for all.",
    "ElectLeaders": "Elects preferred (0) or unclean (1) leaders (KIP-460); null stands for all partitions.",
    "ListPartitionReassignments": "Asks which replicas move (KIP-455); null `topics` stand for all.",
    "DescribeConfigs": (
        "Asks for settings of topics (2), brokers (4), and other resources; null `configuration_keys` stand for all. "
        "`config_source` says where a value comes from (KIP-226)."
    ),
    "AlterConfigs": "Replaces all settings of resources; what is not named gets its default again.",
    "IncrementalAlterConfigs": "Sets (0), deletes (1), appends to (2) or subtracts from (3) single settings (KIP-339).",
    "ListConfigResources": (
        "Asks for the resources that have settings (KIP-1142); no types stand for all. Version 0 has client metrics "
        "(16) only."
    ),
    "DeleteGroups": "Forgets groups that have no members, with their offsets.",
    "OffsetDelete": (
        "Forgets what a group committed for topics to which none of its members is subscribed (KIP-496); the answer's "
        "`error_code` is the group's."
    ),
    "Produce": (
        "Appends record batches; `acks` is 0 for no answer, 1 for the leader's, -1 for that of all replicas in sync. "
        "Topics are named by id since version 13. `records` are slices of the frame, which they keep alive."
    ),
    "InitProducerId": (
        "Asks for the id and epoch by which a producer's batches are distinguished from repeated ones; since version 3 "
        "with what the producer has, to go on after an error (KIP-360). A transactional producer gets its own id "
        "again, with the next epoch."
    ),
    "DeleteRecords": (
        "Deletes records from the begin of logs (KIP-107); -1 stands for the high watermark. `low_watermark` is the "
        "first offset afterwards."
    ),
    "DescribeProducers": "Asks what partitions remember of producers (KIP-664); -1 stands for no transaction.",
    "CreateTopics": (
        "Makes topics; `validate_only` looks whether they could be made. -1 as `num_partitions` and "
        "`replication_factor` stands for the cluster's own, or for `assignments`."
    ),
    "DeleteTopics": (
        "Deletes `topic_names`; since version 6 `topics`, by name or by id, of which an unknown one has no name in the "
        "answer."
    ),
    "CreatePartitions": (
        "Adds partitions until there are `count`; null `assignments` leave the nodes to Kafka, and `validate_only` "
        "looks whether they could be added."
    ),
    "AddPartitionsToTxn": "Names the partitions to which a transaction is about to write.",
    "AddOffsetsToTxn": "Names the group for which a transaction is about to commit.",
    "EndTxn": "Commits or aborts a transaction.",
    "TxnOffsetCommit": (
        "Commits offsets that become visible with the transaction; since version 3 as a member (KIP-447)."
    ),
    "DescribeTransactions": (
        "Asks for the state of transactional ids (KIP-664); the start is -1 while nothing is under way."
    ),
    "ListTransactions": "Asks one node for transactional ids (KIP-664); empty filters let all pass.",
}
"""What each request asks for, and what its answer says: the docstring of the request."""

STRUCTURES: Final = {
    # One structure for what Kafka declares once for a single group and again for many.
    "OffsetFetchRequest.OffsetFetchRequestTopics": "OffsetFetchRequestTopic",
    "OffsetFetchResponse.OffsetFetchResponseTopics": "OffsetFetchResponseTopic",
    "OffsetFetchResponse.OffsetFetchResponsePartitions": "OffsetFetchResponsePartition",
    # Another structure has the name, or it says too little outside of its message.
    "OffsetForLeaderEpochResponse.EpochEndOffset": "OffsetForLeaderPartitionResult",
    "ElectLeadersRequest.TopicPartitions": "ElectableTopic",
    "IncrementalAlterConfigsRequest.AlterConfigsResource": "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsRequest.AlterableConfig": "IncrementalAlterableConfig",
    "DescribeProducersRequest.TopicRequest": "DescribeProducersTopic",
    "DescribeProducersResponse.TopicResponse": "ProducersOfTopic",
    "DescribeProducersResponse.PartitionResponse": "ProducersOfPartition",
    "DescribeTransactionsResponse.TopicData": "TransactionTopic",
    "ListTransactionsResponse.TransactionState": "ListedTransaction",
}
"""Names of structures that are not Kafka's."""

FIELDS: Final = {
    "V3AndBelowTransactionalId": "TransactionalId",
    "V3AndBelowProducerId": "ProducerId",
    "V3AndBelowProducerEpoch": "ProducerEpoch",
    "V3AndBelowTopics": "Topics",
    "ResultsByTopicV3AndBelow": "ResultsByTopic",
}
"""Names of fields that are not Kafka's: of AddPartitionsToTxn there is nothing after version 3 here."""

DEFAULTS: Final = {
    # Kafka's schema has 0, which is a broker's id: a consumer must say -1.
    "ListOffsetsRequest.ReplicaId": "-1",
    # Kafka's schema has -2 ("debug"), with which a broker answers from followers too.
    "OffsetForLeaderEpochRequest.ReplicaId": "-1",
}
"""Defaults that are not Kafka's."""


def _of_the_draft(name: str, tag: int) -> dict[str, Any]:
    versions = {"versions": "6+", "taggedVersions": "6+", "tag": tag}
    return {"name": name, "type": "int32", "default": "null", "ignorable": True, **versions}


MORE: Final = {
    "JoinGroupRequest": (
        _of_the_draft("RegistrationTimeoutMs", 34501),
        _of_the_draft("ExpansionTimeoutMs", 34502),
    ),
}
"""Fields behind Kafka's own: those of KIP-345's draft."""
