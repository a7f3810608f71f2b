"""Every error code of Kafka 4.3: its number, its name, and whether Java's client retries it.

One is of another table: NO_STATIC_MEMBER_INFO_SET is what KIP-345's draft calls it, under a number far from Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property

from aiogroup._core.values import dataclass

_NO = 0  # repeating the same request will not help
_RETRY = 1  # it may succeed later (Java: RetriableException)
_STALE = 2  # it may succeed with fresh metadata (Java: InvalidMetadataException, which is retriable too)


class ErrorCode(IntEnum):
    """Kafka's number under Kafka's name."""

    def __new__(cls, code: int, remedy: int, message: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member._remedy = remedy
        member._message = message
        return member

    _remedy: int
    _message: str

    UNKNOWN_SERVER_ERROR = -1, _NO, "the broker failed and does not say how: see its log"
    NONE = 0, _NO, "no error"
    OFFSET_OUT_OF_RANGE = 1, _NO, "the log does not hold this offset"
    CORRUPT_MESSAGE = 2, _RETRY, "a record batch is damaged or not allowed in this topic"
    UNKNOWN_TOPIC_OR_PARTITION = 3, _STALE, "the broker does not have this partition"
    INVALID_FETCH_SIZE = 4, _NO, "the size asked for in a fetch is not valid"
    LEADER_NOT_AVAILABLE = 5, _STALE, "the partition has no leader: an election is under way"
    NOT_LEADER_OR_FOLLOWER = 6, _STALE, "the broker does not lead, or does not host, this partition"
    REQUEST_TIMED_OUT = 7, _RETRY, "the broker did not finish in time"
    BROKER_NOT_AVAILABLE = 8, _NO, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, _STALE, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, _NO, "a record is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, _NO, "the controller has moved"
    OFFSET_METADATA_TOO_LARGE = 12, _NO, "the text committed with the offset is longer than the broker allows"
    NETWORK_EXCEPTION = 13, _STALE, "the connection ended before the answer"
    COORDINATOR_LOAD_IN_PROGRESS = 14, _RETRY, "the coordinator is still reading its log"
    COORDINATOR_NOT_AVAILABLE = 15, _RETRY, "no broker coordinates this group at present"
    NOT_COORDINATOR = 16, _RETRY, "another broker coordinates this group"
    INVALID_TOPIC_EXCEPTION = 17, _NO, "the topic's name is not allowed, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, _NO, "a batch is larger than the broker's segments"
    NOT_ENOUGH_REPLICAS = 19, _RETRY, "too few replicas are in sync to accept records"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRY, "the records are written, but on too few replicas"
    INVALID_REQUIRED_ACKS = 21, _NO, "acks is none of 0, 1 and -1"
    ILLEGAL_GENERATION = 22, _NO, "the group is in another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, _NO, "the group's members have no assignor or protocol type in common"
    INVALID_GROUP_ID = 24, _NO, "the group's id is not valid"
    UNKNOWN_MEMBER_ID = 25, _NO, "the group does not have this member (any more)"
    INVALID_SESSION_TIMEOUT = (
        26,
        _NO,
        "the session time-out is outside the broker's group.min/max.session.timeout.ms",
    )
    REBALANCE_IN_PROGRESS = 27, _NO, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, _NO, "the commit is larger than the offsets topic allows"
    TOPIC_AUTHORIZATION_FAILED = 29, _NO, "the principal lacks rights on the topic"
    GROUP_AUTHORIZATION_FAILED = 30, _NO, "the principal lacks rights on the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, _NO, "the principal lacks rights on the cluster"
    INVALID_TIMESTAMP = 32, _NO, "a timestamp is outside of what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, _NO, "the listener does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, _NO, "the request does not fit the state of the authentication"
    UNSUPPORTED_VERSION = 35, _NO, "the broker does not speak this version of the request"
    TOPIC_ALREADY_EXISTS = 36, _NO, "there is a topic of this name"
    INVALID_PARTITIONS = 37, _NO, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, _NO, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, _NO, "the placement of replicas is not valid"
    INVALID_CONFIG = 40, _NO, "a setting is not valid"
    NOT_CONTROLLER = 41, _RETRY, "another node is the controller"
    INVALID_REQUEST = 42, _NO, "the broker finds the request malformed: its log says why"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _NO, "the topic's record format cannot do this"
    POLICY_VIOLATION = 44, _NO, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _NO, "an idempotent producer's records arrived with a gap"
    DUPLICATE_SEQUENCE_NUMBER = 46, _NO, "an idempotent producer's records arrived twice"
    INVALID_PRODUCER_EPOCH = 47, _NO, "the producer's epoch is old"
    INVALID_TXN_STATE = 48, _NO, "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, _NO, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, _NO, "the transaction time-out is above the broker's maximum"
    CONCURRENT_TRANSACTIONS = 51, _RETRY, "another operation on the same transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, _NO, "the transaction coordinator was replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _NO, "the principal lacks rights on the transactional id"
    SECURITY_DISABLED = 54, _NO, "the cluster has no security switched on"
    OPERATION_NOT_ATTEMPTED = 55, _NO, "the broker stopped before this part of the request"
    KAFKA_STORAGE_ERROR = 56, _STALE, "a disk of the broker failed"
    LOG_DIR_NOT_FOUND = 57, _NO, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, _NO, "the credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, _NO, "the broker forgot this producer: its records are gone by retention"
    REASSIGNMENT_IN_PROGRESS = 60, _NO, "the partition is being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _NO, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, _NO, "the broker does not have this delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        _NO,
        "the principal neither owns nor may renew this delegation token",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, _NO, "delegation tokens cannot be handled over this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _NO, "the principal lacks rights on the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, _NO, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, _NO, "principals of this type are not supported"
    NON_EMPTY_GROUP = 68, _NO, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, _NO, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRY, "the broker dropped the fetch session: begin a new one"
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRY, "the fetch session is out of step: begin a new one"
    LISTENER_NOT_FOUND = 72, _STALE, "the leader lacks the listener that was asked"
    TOPIC_DELETION_DISABLED = 73, _NO, "the cluster does not delete topics"
    FENCED_LEADER_EPOCH = 74, _STALE, "the leader epoch sent is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, _RETRY, "the leader epoch sent is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, _NO, "the request's version cannot carry the topic's compression"
    STALE_BROKER_EPOCH = 77, _NO, "the broker has restarted since"
    OFFSET_NOT_AVAILABLE = 78, _RETRY, "a new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, _NO, "join again with the member id of this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _STALE, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, _NO, "the group has as many members as group.max.size allows"
    FENCED_INSTANCE_ID = 82, _NO, "another member took over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _STALE, "no replica that may lead is available"
    ELECTION_NOT_NEEDED = 84, _STALE, "the partition has the leader that was asked for"
    NO_REASSIGNMENT_IN_PROGRESS = 85, _NO, "the partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _NO, "offsets of a topic with subscribers cannot be deleted"
    INVALID_RECORD = 87, _NO, "the broker refuses a record"
    UNSTABLE_OFFSET_COMMIT = 88, _RETRY, "an open transaction holds back the committed offset"
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRY, "the quota is used up for now"
    PRODUCER_FENCED = 90, _NO, "a newer producer uses this transactional id"
    RESOURCE_NOT_FOUND = 91, _NO, "the request names something that does not exist"
    DUPLICATE_RESOURCE = 92, _NO, "the request names something twice"
    UNACCEPTABLE_CREDENTIAL = 93, _NO, "the new credential does not meet the rules"
    INCONSISTENT_VOTER_SET = 94, _NO, "a node is not among the voters it should be of"
    INVALID_UPDATE_VERSION = 95, _NO, "the version to update to is not valid"
    FEATURE_UPDATE_FAILED = 96, _NO, "the cluster's features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _NO, "the brokers' security settings do not fit each other"
    SNAPSHOT_NOT_FOUND = 98, _NO, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, _NO, "the position is outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, _STALE, "the broker does not have a topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, _NO, "another broker has this id"
    BROKER_ID_NOT_REGISTERED = 102, _NO, "no broker has this id"
    INCONSISTENT_TOPIC_ID = 103, _STALE, "the log belongs to another topic id: the topic was recreated"
    INCONSISTENT_CLUSTER_ID = 104, _NO, "the request was meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, _NO, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRY, "a fetch session mixed topic names and ids: begin a new one"
    INELIGIBLE_REPLICA = 107, _NO, "a replica may not be in sync at present"
    NEW_LEADER_ELECTED = 108, _NO, "the change was made and the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _NO, "the offset is in tiered storage only"
    FENCED_MEMBER_EPOCH = 110, _NO, "the coordinator gave this member's partitions up: join again"
    UNRELEASED_INSTANCE_ID = 111, _NO, "another member still uses this group.instance.id"
    UNSUPPORTED_ASSIGNOR = 112, _NO, "the coordinator lacks this assignor, or its version"
    STALE_MEMBER_EPOCH = 113, _NO, "the member's epoch is old: take the next heartbeat's"
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        _NO,
        "the request went to a broker instead of a controller, or the reverse",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, _NO, "endpoints of this type are not supported"
    UNKNOWN_CONTROLLER_ID = 116, _NO, "no controller has this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, _NO, "the telemetry subscription is unknown or old"
    TELEMETRY_TOO_LARGE = 118, _NO, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, _NO, "the controller refuses the broker's registration"
    TRANSACTION_ABORTABLE = 120, _NO, "the transaction failed: abort it and go on"
    INVALID_RECORD_STATE = 121, _NO, "the record's delivery cannot be acknowledged in its state"
    SHARE_SESSION_NOT_FOUND = 122, _RETRY, "the broker dropped the share session"
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRY, "the share session is out of step"
    FENCED_STATE_EPOCH = 124, _NO, "the share group's state was taken over"
    INVALID_VOTER_KEY = 125, _NO, "the voter's key is another one"
    DUPLICATE_VOTER = 126, _NO, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, _NO, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, _NO, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, _NO, "the metadata is too old: begin again at the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, _NO, "the Streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _NO, "the Streams topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, _NO, "the Streams topology's epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRY, "the broker has as many share sessions as it allows"
    NO_STATIC_MEMBER_INFO_SET = 10345, _NO, "a static member must commit with its name and its id"

    @cached_property
    def row(self) -> ErrorRow:
        return ErrorRow(int(self), self.name, self._remedy != _NO, self._remedy == _STALE, self._message)


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One error code.

    `retriable`: the same request may succeed later. `invalid_metadata`: it may succeed once metadata is refreshed.
    """

    code: int
    name: str
    retriable: bool
    invalid_metadata: bool
    message: str


_KNOWN = {int(each): each for each in ErrorCode}


def lookup(code: int) -> ErrorRow:
    """The row of a code. A code that this version of aiogroup does not know gets a row that says so."""
    known = _KNOWN.get(code)
    if known is not None:
        return known.row
    return ErrorRow(code, f"UNKNOWN_CODE_{code}", False, False, "a code that is newer than this version of aiogroup")
