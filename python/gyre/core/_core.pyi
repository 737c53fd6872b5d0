from collections.abc import Sequence
from typing import Any, TypedDict, overload

__version__: str
libtorch_version: str

class Place(TypedDict):
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool

class BucketStatistics(TypedDict):
    tensor_count: int
    size_bytes: int
    type: str
    algorithm: str
    reason: str
    ready_s: float
    start_s: float
    end_s: float

class StepStatistics(TypedDict):
    backward_s: float
    exchange_s: float
    hidden_s: float
    exposed_s: float
    overtaken_buckets: int
    missing_tensors: int

class PlanStatistics(TypedDict):
    name: str
    steps: int
    arena_bytes: int
    buckets: list[BucketStatistics]
    last: StepStatistics
    total: StepStatistics

class LaneStatistics(TypedDict):
    lane: str
    collectives: int
    bytes_sent: int
    bytes_received: int
    bytes_in_place: int
    futex_sleeps: int
    yields: int
    waiting_s: float
    copying_s: float
    reducing_s: float
    sending_s: float

class Statistics(TypedDict):
    lanes: list[LaneStatistics]
    plans: list[PlanStatistics]

class Memory:
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def keep_values(self) -> None: ...

class DataLoader:
    def __init__(
        self,
        files: Sequence[str],
        *,
        format: str,
        records_per_file: int,
        fields: Sequence[tuple[Any, ...]],
        batch_size: int,
        shuffle: str,
        seed: int,
        drop_last: bool,
        rank: int,
        ranks: int,
        threads: int,
        memory_budget: int,
        prefetch: int,
        replace_damaged: bool,
        pyarrow_folder: str = ...,
    ) -> None: ...
    @property
    def advice(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def files_checksum(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def start_epoch(self, epoch: int, step: int = ...) -> None: ...
    def next(self) -> tuple[list[Memory], int, int, int, int] | None: ...
    @overload
    def add_wait_to_timeline(self, runtime: Runtime, row: str) -> None: ...
    @overload
    def add_wait_to_timeline(self, timeline: Timeline, row: str) -> None: ...
    def ledger(self) -> dict[str, Any]: ...

def encode_example(features: Sequence[tuple[str, str, bytes]]) -> bytes: ...
def synthetic_image(seed: int, classes: int, size: int, stream: int, index: int) -> tuple[bytes, int, int, int]: ...
def usable_cores() -> int: ...
def write_tfrecords(path: str, records: Sequence[bytes], compression: str = ..., level: int = ...) -> None: ...

class Request:
    def __init__(
        self,
        *,
        kind: int,
        name: str,
        data_type: int,
        shape: Sequence[int],
        input: tuple[int, int] = ...,
        output: tuple[int, int] = ...,
        operation: int = ...,
        prescale: float = 1.0,
        postscale: float = 1.0,
        root: int = 0,
        splits: Sequence[int] = ...,
        expected_splits: Sequence[int] = ...,
        transient: bool = False,
        peer_mapped: tuple[int, int, Sequence[int]] = ...,
    ) -> None: ...
    @property
    def name(self) -> str: ...

class Handle:
    def done(self) -> bool: ...
    def wait(self) -> None: ...
    def wait_for(self, seconds: float) -> bool: ...
    def take_result(self) -> tuple[Memory, list[int], list[int]]: ...

class PlanOptions:
    def __init__(
        self,
        *,
        name: str,
        operation: int,
        prescale: float = 1.0,
        postscale: float = 1.0,
        wire: str = "native",
        error_feedback: bool = False,
    ) -> None: ...

class Plan:
    @property
    def tensor_count(self) -> int: ...
    @property
    def bucket_count(self) -> int: ...
    @property
    def step(self) -> int: ...
    def memory(self, index: int) -> Memory: ...
    def mark_ready(self, index: int) -> None: ...
    def contribute(self, index: int, address: int, size_bytes: int) -> None: ...
    def is_ready(self, index: int) -> bool: ...
    def finish_step(self) -> None: ...
    def statistics(self) -> PlanStatistics: ...

class Join:
    def wait(self) -> int: ...

class Runtime:
    @property
    def place(self) -> Place: ...
    def submit(self, request: Request) -> Handle: ...
    def run_or_submit(self, request: Request) -> Handle: ...
    def run_in_memory(
        self,
        kind: int,
        name: str,
        transient: bool,
        data_type: int,
        shape: Sequence[int],
        input: int,
        output: int,
        size_bytes: int,
        operation: int,
        prescale: float,
        postscale: float,
        root: int,
        /,
    ) -> Handle | None: ...
    def submit_in_memory(
        self,
        kind: int,
        name: str,
        transient: bool,
        data_type: int,
        shape: Sequence[int],
        input: int,
        output: int,
        size_bytes: int,
        operation: int,
        prescale: float,
        postscale: float,
        root: int,
        /,
    ) -> Handle: ...
    def submit_group(self, requests: Sequence[Request]) -> list[Handle]: ...
    def begin_join(self, *, every_operation: bool = False, divide_by_contributors: bool = False) -> Join: ...
    def subset(self, ranks: Sequence[int], id: int, name: str) -> Runtime: ...
    def check_plan(self, tensors: Sequence[tuple[str, int, Sequence[int], int]], options: PlanOptions) -> None: ...
    def make_plan(
        self,
        tensors: Sequence[tuple[str, int, Sequence[int], int]],
        options: PlanOptions,
        ready_order: Sequence[int] = ...,
    ) -> Plan: ...
    def statistics(self) -> Statistics: ...
    def abort(self, reason: str) -> None: ...
    def shutdown(self) -> None: ...
    def start_timeline(self, path: str, mark_cycles: bool = False) -> None: ...
    def stop_timeline(self) -> None: ...

def hash_memory(memory: tuple[int, int]) -> int: ...
def combine_contributions(
    *,
    result: tuple[int, int],
    contributions: Sequence[tuple[int, int]],
    data_type: int,
    operation: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> None: ...
def start() -> Runtime: ...
def announce_end(descriptor: int, rank: int) -> None: ...
def host_id() -> str: ...
def join_on_this_host(
    *,
    rank: int,
    size: int,
    name: str,
    join_timeout_seconds: float,
    operation_timeout_seconds: float,
    timeline: bool,
    around: tuple[Sequence[int], int | None] = ...,
) -> Runtime: ...
def join_at(
    *,
    rank: int,
    size: int,
    rendezvous: str,
    key: bytes,
    listener: int | None = None,
    join_timeout_seconds: float,
    operation_timeout_seconds: float,
    timeline: bool,
    around: tuple[Sequence[int], int | None] = ...,
) -> Runtime: ...

class MessageHandle:
    def done(self) -> bool: ...
    def wait(self) -> None: ...
    def wait_for(self, seconds: float) -> bool: ...
    def take_source(self) -> int: ...

class PointToPoint:
    def __init__(self, runtime: Runtime) -> None: ...
    def send(self, peer: int, tag: int, data_type: int, memory: tuple[int, int]) -> MessageHandle: ...
    def receive(self, peer: int | None, tag: int, data_type: int, memory: tuple[int, int]) -> MessageHandle: ...
    def shutdown(self) -> None: ...

def read_checkpoint(path: str) -> tuple[dict[str, str], list[tuple[str, str, list[int], bytes]]]: ...
def encode_checkpoint(metadata: dict[str, str], tensors: list[tuple[str, str, list[int], bytes]]) -> bytes: ...
def exchange_cost(
    architecture: str,
    servers: int,
    workers: int,
    bytes: int,
    bytes_per_second: float,
    latency_seconds: float,
    block_bytes: int,
) -> tuple[float, float, float]: ...
def choose_architecture(
    workers: int,
    bytes: int,
    bytes_per_second: float,
    latency_seconds: float,
    block_bytes: int,
    spare_hosts: int,
) -> tuple[str, int, tuple[float, float, float]]: ...

class Consistency:
    @property
    def needs_servers(self) -> bool: ...
    @property
    def servers_update(self) -> bool: ...
    @property
    def local_steps(self) -> int: ...
    def outer_optimizer(self, workers: int) -> tuple[float, float, bool]: ...

def parse_consistency(text: str, what: str) -> Consistency: ...

class Timeline: ...

class ParameterWorker:
    @property
    def timeline(self) -> Timeline | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def servers(self) -> int: ...
    def attach(self, counts: Sequence[int], names: Sequence[str], consistency: Consistency) -> None: ...
    def initialise(self, tensors: Sequence[int]) -> None: ...
    def pull(self, tensors: Sequence[int]) -> None: ...
    def step(self, input: Sequence[int], output: Sequence[int], rate: float) -> tuple[bool, list[int]]: ...
    def sum(self, values: Sequence[float]) -> list[float]: ...
    def broadcast(self, memory: tuple[int, int]) -> None: ...
    def leave(self) -> None: ...
    def abort(self, reason: str) -> None: ...

def join_parameter_servers() -> ParameterWorker: ...
