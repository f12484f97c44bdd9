from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToService(_message.Message):
    __slots__ = ("join", "finished", "waiting", "at", "leaving", "report", "meeting", "call", "failed", "times", "refused")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    MEETING_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    join: JoinRequest
    finished: Finished
    waiting: int
    at: int
    leaving: bool
    report: Report
    meeting: int
    call: Call
    failed: Failed
    times: CallTimes
    refused: Failed
    def __init__(self, join: _Optional[_Union[JoinRequest, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., waiting: _Optional[int] = ..., at: _Optional[int] = ..., leaving: _Optional[bool] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., meeting: _Optional[int] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., times: _Optional[_Union[CallTimes, _Mapping]] = ..., refused: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class CallTimes(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CallTime]
    def __init__(self, calls: _Optional[_Iterable[_Union[CallTime, _Mapping]]] = ...) -> None: ...

class CallTime(_message.Message):
    __slots__ = ("number", "what", "submitted", "waited", "began", "ended")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    number: int
    what: str
    submitted: float
    waited: float
    began: float
    ended: float
    def __init__(self, number: _Optional[int] = ..., what: _Optional[str] = ..., submitted: _Optional[float] = ..., waited: _Optional[float] = ..., began: _Optional[float] = ..., ended: _Optional[float] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("number", "what")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    number: int
    what: str
    def __init__(self, number: _Optional[int] = ..., what: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("call", "what", "error")
    CALL_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    call: int
    what: str
    error: str
    def __init__(self, call: _Optional[int] = ..., what: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("host", "process", "count", "names", "job", "slots", "ring", "min_workers", "per_host", "local", "slot_share")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    PER_HOST_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    SLOT_SHARE_FIELD_NUMBER: _ClassVar[int]
    host: str
    process: int
    count: int
    names: HostNames
    job: str
    slots: int
    ring: bool
    min_workers: int
    per_host: int
    local: int
    slot_share: int
    def __init__(self, host: _Optional[str] = ..., process: _Optional[int] = ..., count: _Optional[int] = ..., names: _Optional[_Union[HostNames, _Mapping]] = ..., job: _Optional[str] = ..., slots: _Optional[int] = ..., ring: _Optional[bool] = ..., min_workers: _Optional[int] = ..., per_host: _Optional[int] = ..., local: _Optional[int] = ..., slot_share: _Optional[int] = ...) -> None: ...

class HostNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("count", "port", "round")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    count: int
    port: int
    round: int
    def __init__(self, count: _Optional[int] = ..., port: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class FromService(_message.Message):
    __slots__ = ("waiting_for", "queued", "assignment", "left", "revoked", "carry_on", "regroup", "group", "slow", "where", "met", "aborted", "ranks")
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    CARRY_ON_FIELD_NUMBER: _ClassVar[int]
    REGROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    waiting_for: HostNames
    queued: Queued
    assignment: Assignment
    left: Left
    revoked: str
    carry_on: CarryOn
    regroup: Regroup
    group: Group
    slow: Slow
    where: Where
    met: int
    aborted: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, waiting_for: _Optional[_Union[HostNames, _Mapping]] = ..., queued: _Optional[_Union[Queued, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., left: _Optional[_Union[Left, _Mapping]] = ..., revoked: _Optional[str] = ..., carry_on: _Optional[_Union[CarryOn, _Mapping]] = ..., regroup: _Optional[_Union[Regroup, _Mapping]] = ..., group: _Optional[_Union[Group, _Mapping]] = ..., slow: _Optional[_Union[Slow, _Mapping]] = ..., where: _Optional[_Union[Where, _Mapping]] = ..., met: _Optional[int] = ..., aborted: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Queued(_message.Message):
    __slots__ = ("rank", "place", "why")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    rank: int
    place: int
    why: str
    def __init__(self, rank: _Optional[int] = ..., place: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("rank", "hosts", "addresses", "config", "refused", "job", "round", "begun", "processes")
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    hosts: _containers.RepeatedScalarFieldContainer[str]
    addresses: _containers.RepeatedCompositeFieldContainer[Address]
    config: Config
    refused: str
    job: str
    round: int
    begun: int
    processes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, rank: _Optional[int] = ..., hosts: _Optional[_Iterable[str]] = ..., addresses: _Optional[_Iterable[_Union[Address, _Mapping]]] = ..., config: _Optional[_Union[Config, _Mapping]] = ..., refused: _Optional[str] = ..., job: _Optional[str] = ..., round: _Optional[int] = ..., begun: _Optional[int] = ..., processes: _Optional[_Iterable[int]] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("ip", "port")
    IP_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ip: str
    port: int
    def __init__(self, ip: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Config(_message.Message):
    __slots__ = ("lease", "local", "remote", "segments", "offload", "recovery", "worker")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    local: Address
    remote: Address
    segments: int
    offload: bool
    recovery: Recovery
    worker: str
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., local: _Optional[_Union[Address, _Mapping]] = ..., remote: _Optional[_Union[Address, _Mapping]] = ..., segments: _Optional[int] = ..., offload: _Optional[bool] = ..., recovery: _Optional[_Union[Recovery, _Mapping]] = ..., worker: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "rank", "workers", "window", "first_slot", "values", "first_chunk", "last_chunk", "slots")
    ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    FIRST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    rank: int
    workers: int
    window: int
    first_slot: int
    values: int
    first_chunk: int
    last_chunk: int
    slots: int
    def __init__(self, id: _Optional[int] = ..., rank: _Optional[int] = ..., workers: _Optional[int] = ..., window: _Optional[int] = ..., first_slot: _Optional[int] = ..., values: _Optional[int] = ..., first_chunk: _Optional[int] = ..., last_chunk: _Optional[int] = ..., slots: _Optional[int] = ...) -> None: ...

class Recovery(_message.Message):
    __slots__ = ("initial_rto", "min_rto", "max_rto", "give_up", "granularity", "packet_threshold")
    INITIAL_RTO_FIELD_NUMBER: _ClassVar[int]
    MIN_RTO_FIELD_NUMBER: _ClassVar[int]
    MAX_RTO_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_FIELD_NUMBER: _ClassVar[int]
    GRANULARITY_FIELD_NUMBER: _ClassVar[int]
    PACKET_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    initial_rto: float
    min_rto: float
    max_rto: float
    give_up: float
    granularity: float
    packet_threshold: int
    def __init__(self, initial_rto: _Optional[float] = ..., min_rto: _Optional[float] = ..., max_rto: _Optional[float] = ..., give_up: _Optional[float] = ..., granularity: _Optional[float] = ..., packet_threshold: _Optional[int] = ...) -> None: ...

class Left(_message.Message):
    __slots__ = ("host", "rank", "process")
    HOST_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    host: str
    rank: int
    process: int
    def __init__(self, host: _Optional[str] = ..., rank: _Optional[int] = ..., process: _Optional[int] = ...) -> None: ...

class CarryOn(_message.Message):
    __slots__ = ("finished",)
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    finished: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, finished: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("count", "port", "ended")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    count: int
    port: int
    ended: bool
    def __init__(self, count: _Optional[int] = ..., port: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class Regroup(_message.Message):
    __slots__ = ("round", "why")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    round: int
    why: str
    def __init__(self, round: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("round", "finished", "assignment", "refused", "joined")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    round: int
    finished: _containers.RepeatedCompositeFieldContainer[HostCount]
    assignment: Assignment
    refused: str
    joined: bool
    def __init__(self, round: _Optional[int] = ..., finished: _Optional[_Iterable[_Union[HostCount, _Mapping]]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., refused: _Optional[str] = ..., joined: _Optional[bool] = ...) -> None: ...

class HostCount(_message.Message):
    __slots__ = ("host", "count", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    count: int
    port: int
    def __init__(self, host: _Optional[str] = ..., count: _Optional[int] = ..., port: _Optional[int] = ...) -> None: ...

class Slow(_message.Message):
    __slots__ = ("at", "workers", "told")
    AT_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    at: int
    workers: str
    told: bool
    def __init__(self, at: _Optional[int] = ..., workers: _Optional[str] = ..., told: _Optional[bool] = ...) -> None: ...

class Where(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "hosts", "processes", "workers", "state", "place", "why", "since", "ring", "lease", "slots", "udp_port", "switches", "tree", "aborted", "per_host")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    PER_HOST_FIELD_NUMBER: _ClassVar[int]
    name: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    processes: _containers.RepeatedScalarFieldContainer[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerState]
    state: str
    place: int
    why: str
    since: float
    ring: bool
    lease: int
    slots: Range
    udp_port: int
    switches: _containers.RepeatedScalarFieldContainer[str]
    tree: _containers.RepeatedCompositeFieldContainer[Part]
    aborted: str
    per_host: int
    def __init__(self, name: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., processes: _Optional[_Iterable[int]] = ..., workers: _Optional[_Iterable[_Union[WorkerState, _Mapping]]] = ..., state: _Optional[str] = ..., place: _Optional[int] = ..., why: _Optional[str] = ..., since: _Optional[float] = ..., ring: _Optional[bool] = ..., lease: _Optional[int] = ..., slots: _Optional[_Union[Range, _Mapping]] = ..., udp_port: _Optional[int] = ..., switches: _Optional[_Iterable[str]] = ..., tree: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., aborted: _Optional[str] = ..., per_host: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("switch", "children", "parent")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    switch: str
    children: _containers.RepeatedScalarFieldContainer[str]
    parent: str
    def __init__(self, switch: _Optional[str] = ..., children: _Optional[_Iterable[str]] = ..., parent: _Optional[str] = ...) -> None: ...

class WorkerState(_message.Message):
    __slots__ = ("host", "process", "joined", "left", "heard", "report", "local", "call")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    host: str
    process: int
    joined: float
    left: bool
    heard: float
    report: Report
    local: int
    call: int
    def __init__(self, host: _Optional[str] = ..., process: _Optional[int] = ..., joined: _Optional[float] = ..., left: _Optional[bool] = ..., heard: _Optional[float] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., local: _Optional[int] = ..., call: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("all_reduces", "bytes_sent", "bytes_received", "retransmissions", "datagrams_sent", "datagrams_received", "accepted", "timeouts", "saturated", "ignored", "smoothed_rtt", "rto", "waiting", "congestion_window")
    class IgnoredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ALL_REDUCES_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    RETRANSMISSIONS_FIELD_NUMBER: _ClassVar[int]
    DATAGRAMS_SENT_FIELD_NUMBER: _ClassVar[int]
    DATAGRAMS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    SATURATED_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    SMOOTHED_RTT_FIELD_NUMBER: _ClassVar[int]
    RTO_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    CONGESTION_WINDOW_FIELD_NUMBER: _ClassVar[int]
    all_reduces: int
    bytes_sent: int
    bytes_received: int
    retransmissions: int
    datagrams_sent: int
    datagrams_received: int
    accepted: int
    timeouts: int
    saturated: int
    ignored: _containers.ScalarMap[str, int]
    smoothed_rtt: float
    rto: float
    waiting: Outstanding
    congestion_window: float
    def __init__(self, all_reduces: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., retransmissions: _Optional[int] = ..., datagrams_sent: _Optional[int] = ..., datagrams_received: _Optional[int] = ..., accepted: _Optional[int] = ..., timeouts: _Optional[int] = ..., saturated: _Optional[int] = ..., ignored: _Optional[_Mapping[str, int]] = ..., smoothed_rtt: _Optional[float] = ..., rto: _Optional[float] = ..., waiting: _Optional[_Union[Outstanding, _Mapping]] = ..., congestion_window: _Optional[float] = ...) -> None: ...

class Outstanding(_message.Message):
    __slots__ = ("all_reduce", "elements", "announcing", "accepted", "total", "chunks", "sent", "waiting", "silent")
    ALL_REDUCE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCING_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    all_reduce: int
    elements: int
    announcing: bool
    accepted: int
    total: int
    chunks: _containers.RepeatedCompositeFieldContainer[Range]
    sent: Range
    waiting: float
    silent: float
    def __init__(self, all_reduce: _Optional[int] = ..., elements: _Optional[int] = ..., announcing: _Optional[bool] = ..., accepted: _Optional[int] = ..., total: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., sent: _Optional[_Union[Range, _Mapping]] = ..., waiting: _Optional[float] = ..., silent: _Optional[float] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbsentRequest(_message.Message):
    __slots__ = ("job", "host")
    JOB_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    job: str
    host: str
    def __init__(self, job: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class AbsentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LookRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LookResponse(_message.Message):
    __slots__ = ("at", "jobs", "forming", "switches", "links")
    class SwitchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Switch
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Switch, _Mapping]] = ...) -> None: ...
    AT_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FORMING_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    at: float
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    forming: _containers.RepeatedCompositeFieldContainer[Forming]
    switches: _containers.MessageMap[str, Switch]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, at: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., forming: _Optional[_Iterable[_Union[Forming, _Mapping]]] = ..., switches: _Optional[_Mapping[str, Switch]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...

class Forming(_message.Message):
    __slots__ = ("name", "hosts", "workers", "missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerState]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., workers: _Optional[_Iterable[_Union[WorkerState, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ("slots", "received", "sent", "drops", "events", "error")
    class DropsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EventsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    slots: int
    received: int
    sent: int
    drops: _containers.ScalarMap[str, int]
    events: _containers.ScalarMap[str, int]
    error: str
    def __init__(self, slots: _Optional[int] = ..., received: _Optional[int] = ..., sent: _Optional[int] = ..., drops: _Optional[_Mapping[str, int]] = ..., events: _Optional[_Mapping[str, int]] = ..., error: _Optional[str] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("sender", "receiver", "rate", "up", "packets", "bytes", "lost", "queue_bytes", "built_rate")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUILT_RATE_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    rate: int
    up: bool
    packets: int
    bytes: int
    lost: int
    queue_bytes: int
    built_rate: int
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., rate: _Optional[int] = ..., up: _Optional[bool] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ..., lost: _Optional[int] = ..., queue_bytes: _Optional[int] = ..., built_rate: _Optional[int] = ...) -> None: ...

class CellsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class CellsResponse(_message.Message):
    __slots__ = ("switches",)
    class SwitchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: SwitchCells
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[SwitchCells, _Mapping]] = ...) -> None: ...
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.MessageMap[str, SwitchCells]
    def __init__(self, switches: _Optional[_Mapping[str, SwitchCells]] = ...) -> None: ...

class SwitchCells(_message.Message):
    __slots__ = ("cells", "error")
    class CellsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Cell
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Cell, _Mapping]] = ...) -> None: ...
    CELLS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.MessageMap[int, Cell]
    error: str
    def __init__(self, cells: _Optional[_Mapping[int, Cell]] = ..., error: _Optional[str] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ("lease", "chunk", "seen", "done")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    chunk: int
    seen: int
    done: bool
    def __init__(self, lease: _Optional[int] = ..., chunk: _Optional[int] = ..., seen: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class TimesRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class TimesResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[CallTimes]
    def __init__(self, workers: _Optional[_Iterable[_Union[CallTimes, _Mapping]]] = ...) -> None: ...
