"""Part of the stand-in for vLLM: where a cached token came from."""
from enum import Enum


class CacheHitSource(str, Enum):
    HOST = "host"
    EXTERNAL_UNSPECIFIED = "external_unspecified"
