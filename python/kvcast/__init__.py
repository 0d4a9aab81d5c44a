"""KV-cache event streams and an exact, group-aware prefix index for LLM routers.

All classes are thread-safe unless their documentation states otherwise. All functions that compute
release the GIL. Errors of kvcast are subclasses of KvcastError; a wrong type of an argument, or an
integer that does not fit into 64 bits, raises TypeError.
"""

from ._kvcast import (
    AllBlocksCleared,
    ApplyResult,
    BlockCopier,
    BlockHashes,
    BlockRemoved,
    BlockStored,
    Candidate,
    Choice,
    ClosedError,
    EventBatch,
    EvictionOrder,
    ExhaustedError,
    InternalError,
    InvalidArgumentError,
    KvcastError,
    KvEventPublisher,
    KvIndexer,
    LimitError,
    MalformedError,
    NotFoundError,
    OffloadManager,
    OffloadScheduler,
    OverlapScores,
    Router,
    Selector,
    StateError,
    StreamItem,
    UnavailableError,
    __version__,
    compute_block_hashes,
    decode_batch,
    encode_batch,
    open_router,
    simulate,
)
from ._subscriber import Subscriber

# Names and pickles of the classes show the package, not its C++ part.
for _value in list(globals().values()):
    if getattr(_value, "__module__", None) == "kvcast._kvcast":
        _value.__module__ = "kvcast"
del _value

__all__ = [
    "AllBlocksCleared",
    "ApplyResult",
    "BlockCopier",
    "BlockHashes",
    "BlockRemoved",
    "BlockStored",
    "Candidate",
    "Choice",
    "ClosedError",
    "EventBatch",
    "EvictionOrder",
    "ExhaustedError",
    "InternalError",
    "InvalidArgumentError",
    "KvEventPublisher",
    "KvIndexer",
    "KvcastError",
    "LimitError",
    "MalformedError",
    "NotFoundError",
    "OffloadManager",
    "OffloadScheduler",
    "OverlapScores",
    "Router",
    "Selector",
    "StateError",
    "StreamItem",
    "Subscriber",
    "UnavailableError",
    "__version__",
    "compute_block_hashes",
    "decode_batch",
    "encode_batch",
    "open_router",
    "simulate",
]
