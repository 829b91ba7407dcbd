# What editors and type checkers know of dlpipe.py. "make headers" writes this file.
from typing import Any, Iterator, List, Sequence, TypedDict, Union

DLP_ARRAY_AUTO: int
DLP_ARRAY_CIFAR10: int
DLP_ARRAY_CIFAR100: int
DLP_ARRAY_IDX: int
DLP_ARRAY_NPY: int
DLP_BATCH: int
DLP_BATCH_LAST: int
DLP_BF16: int
DLP_BOOL: int
DLP_CACHE: int
DLP_DEAL_RUNS: int
DLP_DEAL_TURNS: int
DLP_DISPATCH_BATCHES: int
DLP_DISPATCH_CLAIM: int
DLP_EMPTY: int
DLP_END: int
DLP_EOT_BEGINS: int
DLP_EOT_ENDS: int
DLP_EPOCH_END: int
DLP_ERR_ARG: int
DLP_ERR_BUDGET: int
DLP_ERR_BUSY: int
DLP_ERR_CALLBACK: int
DLP_ERR_CORRUPT: int
DLP_ERR_DEADLINE: int
DLP_ERR_DEVICE: int
DLP_ERR_FORKED: int
DLP_ERR_GRAPH: int
DLP_ERR_HELD: int
DLP_ERR_KILLED: int
DLP_ERR_LENGTH: int
DLP_ERR_LIMIT: int
DLP_ERR_MEMORY: int
DLP_ERR_REMOTE: int
DLP_ERR_RESUME: int
DLP_ERR_STATE: int
DLP_ERR_SYSTEM: int
DLP_ERR_UNSUPPORTED: int
DLP_EXPAND: int
DLP_F16: int
DLP_F32: int
DLP_F64: int
DLP_FETCH: int
DLP_FETCH_ASYNC: int
DLP_FETCH_SEQUENTIAL: int
DLP_FETCH_THREADS: int
DLP_FILES_ROOM: int
DLP_FILTER: int
DLP_FOREVER: int
DLP_FULL: int
DLP_FULL_DROP_NEW: int
DLP_FULL_KEEP_NEWEST: int
DLP_FULL_REFUSE: int
DLP_FULL_WAIT: int
DLP_GUARD: int
DLP_I16: int
DLP_I32: int
DLP_I64: int
DLP_I8: int
DLP_LAST_DEFAULT: int
DLP_LAST_DROP: int
DLP_LAST_PAD: int
DLP_LAST_PARTIAL: int
DLP_LINK_CLAIM: int
DLP_LINK_GATHER: int
DLP_LINK_MPSC: int
DLP_LINK_SPSC: int
DLP_LIST: int
DLP_LOAD: int
DLP_LOADER_NODES: int
DLP_MAP: int
DLP_MAX_BRANCHES: int
DLP_MAX_COUNTERS: int
DLP_MAX_CPUS: int
DLP_MAX_DIMS: int
DLP_MAX_FIELDS: int
DLP_MAX_LINKS: int
DLP_MAX_NODES: int
DLP_MAX_STAGES: int
DLP_MAX_WORKERS: int
DLP_MIX: int
DLP_MIX_ALL: int
DLP_MIX_FIRST: int
DLP_MIX_LARGEST: int
DLP_MPSC_MAX_PRODUCERS: int
DLP_NONE: int
DLP_NOWAIT: int
DLP_OK: int
DLP_ON_ERROR_DROP: int
DLP_ON_ERROR_RAISE: int
DLP_ON_ERROR_REPLACE: int
DLP_ORDER_BATCHES: int
DLP_ORDER_FUNCTION: int
DLP_ORDER_PARTS: int
DLP_ORDER_REPLACEMENT: int
DLP_ORDER_SEQUENTIAL: int
DLP_ORDER_SHUFFLED: int
DLP_ORDER_WEIGHTED: int
DLP_OUT: int
DLP_OUT_CAPACITY: int
DLP_OUT_FULL: int
DLP_OUT_HELD: int
DLP_OUT_MISSED: int
DLP_PACK: int
DLP_PACK_CUT: int
DLP_PACK_FIT: int
DLP_PACK_LONGER_CUT: int
DLP_PACK_LONGER_DROP: int
DLP_PACK_LONGER_ERROR: int
DLP_PACK_PADDING: int
DLP_PACK_ROWS: int
DLP_PACK_SEGMENTS: int
DLP_PACK_TOKENS: int
DLP_PASS_EVALUATE: int
DLP_PASS_PREDICT: int
DLP_PASS_TRAIN: int
DLP_PERMUTATION_ROUNDS: int
DLP_PERMUTATION_TABLE: int
DLP_PLACE_PROCESSES: int
DLP_PLACE_THREADS: int
DLP_PRELOAD_AUTO: int
DLP_PRELOAD_CPU: int
DLP_PRELOAD_DEVICE: int
DLP_PRELOAD_NONE: int
DLP_PUSH: int
DLP_PUSH_NEWEST: int
DLP_PUSH_REFUSE: int
DLP_PUSH_WAIT: int
DLP_QUEUE_ALIGN: int
DLP_QUEUE_MAX_CAPACITY: int
DLP_QUEUE_MAX_RECORD: int
DLP_ROWS_INDEX: int
DLP_ROWS_LENGTHS: int
DLP_ROWS_LIST: int
DLP_ROWS_NUMBER: int
DLP_ROWS_OFFSETS: int
DLP_ROWS_VALID: int
DLP_SAMPLER_STATE_BYTES: int
DLP_SKIP: int
DLP_SPLIT: int
DLP_STAGE_BATCH: int
DLP_STAGE_CACHE: int
DLP_STAGE_EXPAND: int
DLP_STAGE_FETCH: int
DLP_STAGE_FOUND: int
DLP_STAGE_GUARD: int
DLP_STAGE_JOIN: int
DLP_STAGE_MAP_BATCH: int
DLP_STAGE_MAP_ITEM: int
DLP_STAGE_OUT: int
DLP_STAGE_PACK: int
DLP_STAGE_PARTS: int
DLP_STAGE_PUSH: int
DLP_STAGE_REPEAT: int
DLP_STAGE_SAMPLER: int
DLP_STAGE_SCRATCH: int
DLP_STAGE_SPLIT: int
DLP_STAGE_TRANSFER: int
DLP_STOPPED: int
DLP_TIMEOUT: int
DLP_TOKENS_AUTO: int
DLP_TOKENS_LLMC: int
DLP_TOKENS_NANOGPT: int
DLP_TOKENS_U16: int
DLP_TOKENS_U32: int
DLP_TOPOLOGY_CLASSIC: int
DLP_TOPOLOGY_CONCURRENT: int
DLP_TOPOLOGY_ECONOMIC: int
DLP_TRACE_BLOCKED: int
DLP_TRACE_EPOCH: int
DLP_TRACE_STARVED: int
DLP_TRACE_STEP: int
DLP_TRACE_WAIT: int
DLP_TRACE_WORK: int
DLP_TRANSFER: int
DLP_TUNE_BUSY: int
DLP_TUNE_CORES: int
DLP_TUNE_IDLE: int
DLP_TUNE_NOTES: int
DLP_TUNE_SET: int
DLP_U16: int
DLP_U32: int
DLP_U64: int
DLP_U8: int
DLP_VERBS: int
DLP_WINDOW: int
DLP_WINDOW_BATCHES: int
DLP_WINDOW_EPOCH: int
DLP_WINDOW_NEWEST: int
DLP_WINDOW_STALL: int
DLP_WINDOW_TIME: int
DLP_WORKER_BLOCKED: int
DLP_WORKER_BUSY: int
DLP_WORKER_EXITED: int
DLP_WORKER_IDLE: int
DLP_WORKER_PARKED: int
DLP_WORKER_STARTING: int
DLP_WORKER_STARVED: int
DLP_ZIP: int
dlp_array_column = TypedDict('dlp_array_column', {
    'name': str, 'path': str, 'paths': Any, 'n_paths': int, 'format': int}, total=False)
dlp_arrays_desc = TypedDict('dlp_arrays_desc', {
    'columns': Any, 'n_columns': int, 'reads': int, 'moved': int, 'insist': int}, total=False)
dlp_async = TypedDict('dlp_async', {
    'submit': Any, 'reap': Any}, total=False)
dlp_batch_sampler = TypedDict('dlp_batch_sampler', {
    'next': Any, 'begin': Any, 'save': Any, 'restore': Any, 'user': Any, 'why': Any}, total=False)
dlp_budget = TypedDict('dlp_budget', {
    'limit_bytes': int, 'used_bytes': int}, total=False)
dlp_chunks_desc = TypedDict('dlp_chunks_desc', {
    'n_items': int, 'fields': Any, 'n_fields': int, 'writes_all_bytes': int,
    'chunk_rows': int, 'rows': Any, 'n_chunks': int, 'batch_size': int, 'last': int,
    'within_chunks': int, 'shuffle_chunks': int, 'shuffle_rows': int, 'load': Any,
    'user': Any, 'workers': "dlp_workers_desc", 'cpu_buffers': int,
    'device_buffers': int, 'device': Any, 'transfer_inline': int, 'preload': int,
    'epochs': int, 'pass': int, 'seed': int, 'pipe': "dlp_pipe_desc", 'source': Any,
    'rows_at': Any, 'identity': Any}, total=False)
dlp_counter = TypedDict('dlp_counter', {
    'name': str, 'unit': str, 'most': float}, total=False)
dlp_dataset = TypedDict('dlp_dataset', {
    'n_items': int, 'fields': Any, 'n_fields': int, 'writes_all_bytes': int,
    'fetch': Any, 'user': Any, 'open_end': int, 'filter': int, 'reader': Any,
    'warning': str, 'identity': Any, 'worker_bytes': int, 'fetch_rows': Any}, total=False)
dlp_device = TypedDict('dlp_device', {
    'name': str, 'open': Any, 'close': Any, 'register_memory': Any,
    'unregister_memory': Any, 'alloc': Any, 'free': Any, 'copy': Any, 'record': Any,
    'done': Any, 'user': Any, 'handles': int, 'copy_within': Any, 'room': Any}, total=False)
dlp_field = TypedDict('dlp_field', {
    'name': str, 'dtype': int, 'ndim': int, 'shape': Any, 'ragged': int,
    'max_per_batch': int}, total=False)
dlp_files_desc = TypedDict('dlp_files_desc', {
    'n_items': int, 'fields': Any, 'n_fields': int, 'use_threads': int,
    'paths': Any, 'locate': Any, 'decode': Any, 'user': Any, 'max_bytes': int,
    'direct': int, 'in_flight': int, 'writes_all_bytes': int, 'worker_init': Any,
    'worker_exit': Any, 'warning': str, 'moved': int}, total=False)
dlp_guard_field = TypedDict('dlp_guard_field', {
    'name': str, 'low': float, 'high': float, 'allow_nan': int, 'allow_inf': int}, total=False)
dlp_identity = TypedDict('dlp_identity', {
    'names': int, 'order': int, 'sizes': int, 'content': int, 'moved': int}, total=False)
dlp_lines_desc = TypedDict('dlp_lines_desc', {
    'path': str, 'paths': Any, 'n_paths': int, 'fields': Any, 'n_fields': int,
    'optional': int, 'extensions': Any, 'parse': Any, 'decode': Any, 'user': Any,
    'max_bytes': int, 'skip': int, 'no_empty': int, 'index': str, 'threads': int,
    'in_flight': int, 'use_threads': int, 'worker_init': Any, 'worker_exit': Any,
    'log': Any, 'log_user': Any, 'moved': int, 'insist': int, 'maps': int}, total=False)
dlp_loader_desc = TypedDict('dlp_loader_desc', {
    'dataset': "dlp_dataset", 'source': Any, 'batch_size': int, 'num_workers': int,
    'shuffle': int, 'drop_last': int, 'epochs': int, 'seed': int, 'topology': int,
    'sampler': "dlp_sampler_desc", 'workers': "dlp_workers_desc", 'fetcher': int,
    'in_flight': int, 'batch_pool': int, 'async': "dlp_async",
    'cache': "dlp_node_cache", 'collate': Any, 'collate_user': Any,
    'out_fields': Any, 'n_out_fields': int, 'batch_workers': "dlp_workers_desc",
    'device': Any, 'device_buffers': int, 'transfer_thread': int,
    'pipe': "dlp_pipe_desc", 'rows': Any, 'n_rows': int, 'parts': "dlp_node_load"}, total=False)
dlp_mix_leg = TypedDict('dlp_mix_leg', {
    'from': int, 'weights': Any}, total=False)
dlp_node = TypedDict('dlp_node', {
    'name': str, 'from': Any, 'verb': int, 'list': "dlp_node_list",
    'push': "dlp_node_push", 'fetch': "dlp_node_fetch", 'map': "dlp_node_map",
    'batch': "dlp_node_batch", 'transfer': "dlp_node_transfer",
    'load': "dlp_node_load", 'expand': "dlp_node_expand", 'pack': "dlp_node_pack",
    'filter': "dlp_node_filter", 'window': "dlp_node_window", 'mix': "dlp_node_mix",
    'cache': "dlp_node_cache", 'split': "dlp_node_split", 'guard': "dlp_node_guard",
    'workers': "dlp_workers_desc", 'queue': "dlp_node_queue"}, total=False)
dlp_node_batch = TypedDict('dlp_node_batch', {
    'batch_size': int, 'last': int, 'collate': Any, 'collate_user': Any,
    'out_fields': Any, 'n_out_fields': int, 'copy_workers': int}, total=False)
dlp_node_cache = TypedDict('dlp_node_cache', {
    'bytes': int}, total=False)
dlp_node_expand = TypedDict('dlp_node_expand', {
    'expand': Any, 'user': Any, 'fields': Any, 'n_fields': int, 'max_out': int,
    'shuffle_items': int, 'id': int, 'writes_all_bytes': int, 'max_bytes': int}, total=False)
dlp_node_fetch = TypedDict('dlp_node_fetch', {
    'fetch': Any, 'user': Any, 'fields': Any, 'n_fields': int, 'in_flight': int,
    'async': Any, 'batch_pool': int, 'writes_all_bytes': int, 'of': int,
    'source': Any, 'fetch_rows': Any}, total=False)
dlp_node_filter = TypedDict('dlp_node_filter', {
    'keep': Any, 'user': Any, 'id': int}, total=False)
dlp_node_guard = TypedDict('dlp_node_guard', {
    'fields': Any, 'n_fields': int}, total=False)
dlp_node_list = TypedDict('dlp_node_list', {
    'n_items': int, 'first': int, 'shuffle': int, 'open_end': int, 'order': Any,
    'mix': Any}, total=False)
dlp_node_load = TypedDict('dlp_node_load', {
    'n_parts': int, 'items': Any, 'count': Any, 'manifest_id': int,
    'max_part_bytes': int, 'queue_size': int, 'shuffle_parts': int,
    'shuffle_items': int, 'load': Any, 'user': Any, 'workers': "dlp_workers_desc",
    'max_items': int, 'min_items': int, 'window': int, 'weights': Any, 'source': Any}, total=False)
dlp_node_map = TypedDict('dlp_node_map', {
    'item': Any, 'batch': Any, 'user': Any, 'fields': Any, 'n_fields': int,
    'ends': str}, total=False)
dlp_node_mix = TypedDict('dlp_node_mix', {
    'weights': Any, 'legs': Any, 'n_legs': int}, total=False)
dlp_node_pack = TypedDict('dlp_node_pack', {
    'tokens': int, 'rule': int, 'overlap': int, 'max_segments': int, 'window': int,
    'longer': int, 'positions': int, 'id': int, 'min_documents': int}, total=False)
dlp_node_push = TypedDict('dlp_node_push', {
    'source': Any}, total=False)
dlp_node_queue = TypedDict('dlp_node_queue', {
    'capacity': int, 'deal': int, 'full': int}, total=False)
dlp_node_split = TypedDict('dlp_node_split', {
    'chunk_rows': int, 'n_rows': int, 'rows': Any, 'n_chunks': int,
    'batch_size': int, 'last': int, 'within_chunks': int, 'shuffle_rows': int,
    'chunks': Any}, total=False)
dlp_node_transfer = TypedDict('dlp_node_transfer', {
    'device': Any}, total=False)
dlp_node_window = TypedDict('dlp_node_window', {
    'items': int, 'group': int, 'by': str}, total=False)
dlp_pipe_desc = TypedDict('dlp_pipe_desc', {
    'prefetch_factor': int, 'max_held': int, 'unordered': int,
    'close_timeout_ms': int, 'limit_bytes': int, 'budget': Any, 'trace_bytes': int,
    'no_memfd': int, 'resume': Any, 'log': Any, 'log_user': Any, 'name': str,
    'shm': Any, 'counters': Any, 'n_counters': int, 'streams': int, 'seed': int,
    'epochs': int, 'steps_per_epoch': int, 'epoch_end': int, 'allow_uneven': int,
    'uneven': int, 'shared_streams': int, 'rank': int, 'world_size': int,
    'later': int, 'set_epoch': Any, 'set_epoch_user': Any, 'agree': Any,
    'agree_user': Any, 'stall_ms': int, 'trace_rows': int}, total=False)
dlp_sampler_desc = TypedDict('dlp_sampler_desc', {
    'order': int, 'threaded': int, 'seed': int, 'samples_per_epoch': int,
    'subset': Any, 'n_subset': int, 'weights': Any, 'function': Any,
    'function_user': Any, 'function_id': int, 'batches': "dlp_batch_sampler",
    'replacement': Any}, total=False)
dlp_source = TypedDict('dlp_source', {
    'dataset': Any, 'workers': "dlp_workers_desc", 'fetcher': int, 'in_flight': int,
    'batch_pool': int, 'async': "dlp_async", 'id': int, 'close': Any, 'parts': Any,
    'chunks': Any}, total=False)
dlp_state = TypedDict('dlp_state', {
    'bytes': Any}, total=False)
dlp_tar_desc = TypedDict('dlp_tar_desc', {
    'path': str, 'paths': Any, 'n_paths': int, 'fields': Any, 'n_fields': int,
    'optional': int, 'extensions': Any, 'parse': Any, 'decode': Any, 'user': Any,
    'max_bytes': int, 'skip': int, 'no_empty': int, 'index': str, 'threads': int,
    'in_flight': int, 'use_threads': int, 'worker_init': Any, 'worker_exit': Any,
    'log': Any, 'log_user': Any, 'moved': int, 'insist': int, 'maps': int}, total=False)
dlp_tokens_desc = TypedDict('dlp_tokens_desc', {
    'pattern': str, 'paths': Any, 'n_paths': int, 'format': int, 'windows': int,
    'header_bytes': int, 'length': int, 'stride': int, 'widen': int, 'reads': int,
    'read_ahead': int, 'insist': int, 'multiple': int, 'moved': int}, total=False)
dlp_workers_desc = TypedDict('dlp_workers_desc', {
    'num_workers': int, 'placement': int, 'dispatch': int, 'on_error': int,
    'retries': int, 'retry_backoff_ms': int, 'max_skips': int, 'deadline_ms': int,
    'idempotent': int, 'worker_init': Any, 'worker_exit': Any, 'worker_user': Any,
    'affinity': Any, 'n_affinity': int, 'consumer_helps': int, 'stack_bytes': int,
    'name': str, 'workers_min': int, 'workers_max': int, 'tell': Any}, total=False)
structs: dict[str, Any]
lib: Any
INDEX: int
VALID: int
LENGTHS: int
OFFSETS: int
LIST: int
NUMBER: int

class Error(Exception):
    code: int

def dtype(name: str) -> int: ...
def field(name: str, kind: str, *shape: int, ragged: bool = ...) -> Any: ...
def fill(desc: Any, values: dict[str, Any], keep: list[Any], above: str = ...) -> Any: ...

class Source:
    def __init__(self, kind: str, *,
        pattern: str = ..., paths: Any = ..., n_paths: int = ..., format: int = ...,
        windows: int = ..., header_bytes: int = ..., length: int = ...,
        stride: int = ..., widen: int = ..., reads: int = ..., read_ahead: int = ...,
        insist: int = ..., multiple: int = ..., moved: int = ..., n_items: int = ...,
        fields: Any = ..., n_fields: int = ..., use_threads: int = ...,
        locate: Any = ..., decode: Any = ..., user: Any = ..., max_bytes: int = ...,
        direct: int = ..., in_flight: int = ..., writes_all_bytes: int = ...,
        worker_init: Any = ..., worker_exit: Any = ..., warning: str = ...,
        columns: Any = ..., n_columns: int = ..., path: str = ..., optional: int = ...,
        extensions: Any = ..., parse: Any = ..., skip: int = ..., no_empty: int = ...,
        index: str = ..., threads: int = ..., log: Any = ..., log_user: Any = ...,
        maps: int = ...) -> None: ...
    def close(self) -> None: ...

class Tensor:
    def __dlpack__(self, stream: Any = ..., **_: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Batch:
    count: int
    epoch: int
    sequence: int
    names: List[str] # Batch.list is another list
    def tensor(self, name: str) -> Tensor: ...
    def rows(self, what: int, name: Union[str, None] = ...) -> Tensor: ...
    def __getitem__(self, name: str) -> Any: ...
    def lengths(self, name: str) -> Any: ...
    @property
    def index(self) -> Any: ...
    @property
    def list(self) -> Any: ...
    @property
    def number(self) -> Any: ...

class Pipe:
    def __init__(self, nodes: Sequence[dlp_node], *,
        prefetch_factor: int = ..., max_held: int = ..., unordered: int = ...,
        close_timeout_ms: int = ..., limit_bytes: int = ..., budget: Any = ...,
        trace_bytes: int = ..., no_memfd: int = ..., resume: Any = ..., log: Any = ...,
        log_user: Any = ..., name: str = ..., shm: Any = ..., counters: Any = ...,
        n_counters: int = ..., streams: int = ..., seed: int = ..., epochs: int = ...,
        steps_per_epoch: int = ..., epoch_end: int = ..., allow_uneven: int = ...,
        uneven: int = ..., shared_streams: int = ..., rank: int = ...,
        world_size: int = ..., later: int = ..., set_epoch: Any = ...,
        set_epoch_user: Any = ..., agree: Any = ..., agree_user: Any = ...,
        stall_ms: int = ..., trace_rows: int = ...) -> None: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Pipe: ...
    def __exit__(self, *_: Any) -> None: ...
    def state(self, batch: Union[Batch, None] = ...) -> bytes: ...
    def explain(self) -> str: ...
    def close(self) -> None: ...

class Loader(Pipe):
    def __init__(self, *,
        dataset: dlp_dataset = ..., source: Any = ..., batch_size: int = ...,
        num_workers: int = ..., shuffle: int = ..., drop_last: int = ...,
        epochs: int = ..., seed: int = ..., topology: int = ...,
        sampler: dlp_sampler_desc = ..., workers: dlp_workers_desc = ...,
        fetcher: int = ..., in_flight: int = ..., batch_pool: int = ...,
        cache: dlp_node_cache = ..., collate: Any = ..., collate_user: Any = ...,
        out_fields: Any = ..., n_out_fields: int = ...,
        batch_workers: dlp_workers_desc = ..., device: Any = ...,
        device_buffers: int = ..., transfer_thread: int = ...,
        pipe: dlp_pipe_desc = ..., rows: Any = ..., n_rows: int = ...,
        parts: dlp_node_load = ...) -> None: ...
