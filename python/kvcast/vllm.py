"""Plug-in for vLLM: KvEventPublisher in place of vLLM's own ZMQ publisher of KV events.

vLLM loads the plug-in through the entry point `kvcast` of the group `vllm.general_plugins`. The
plug-in changes vLLM only if the environment variable KVCAST_VLLM_PUBLISHER is 1. Then the
publisher "zmq" of vLLM's kv_events_config is KvcastEventPublisher. The payloads of the batches are
those of vLLM's encoder, byte for byte.

Variables (docs/vllm-plugin.md):
    KVCAST_VLLM_PUBLISHER       1: take over the publisher "zmq". 0 or unset: do nothing.
    KVCAST_VLLM_CURVE_KEY       path of the secret key of the publisher (CURVE).
    KVCAST_VLLM_CURVE_CLIENTS   path of the list of clients. Set both CURVE variables or none.
    KVCAST_VLLM_HASHES_ONLY     1: the batches carry hashes, but no token ids and no other content
                                of prompts.

The import of this module does not import vLLM.
"""
import importlib
import os
from dataclasses import dataclass

PREFIX = "KVCAST_VLLM_"
TESTED = ("0.32.0", "0.33.0")  # releases of vLLM


@dataclass(frozen=True)
class Options:
    """The options of the operator."""
    publisher: bool = False
    hashes_only: bool = False
    curve_key: str = ""  # a path
    curve_clients: str = ""  # a path

    @property
    def protects(self) -> bool:
        """True: the operator wants to protect the content of prompts, and vLLM's own publisher does not protect it."""
        return self.hashes_only or bool(self.curve_key)


def options_of(environment=os.environ) -> Options:
    """Return the options of the variables in `environment`.

    Raises ValueError for an unknown variable with the prefix KVCAST_VLLM_, for a value that is not
    0, 1 or empty, and if only one of the two CURVE variables is set. If KVCAST_VLLM_PUBLISHER is
    not 1, the other variables are not read."""
    if not _flag(environment, "PUBLISHER"):
        return Options()
    known = {PREFIX + name for name in ("PUBLISHER", "CURVE_KEY", "CURVE_CLIENTS", "HASHES_ONLY")}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            raise ValueError(f"{name}: unknown variable, must be one of {', '.join(sorted(known))}")
    key, clients = environment.get(PREFIX + "CURVE_KEY", ""), environment.get(PREFIX + "CURVE_CLIENTS", "")
    if bool(key) != bool(clients):
        raise ValueError(f"{PREFIX}CURVE_KEY and {PREFIX}CURVE_CLIENTS: set both or none")
    return Options(True, _flag(environment, "HASHES_ONLY"), key, clients)


def _flag(environment, name: str) -> bool:
    value = environment.get(PREFIX + name, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{PREFIX}{name}: is '{value}', must be 0 or 1")
    return value == "1"


def register() -> None:
    """Take over vLLM's publisher "zmq" if the operator asks for it. vLLM calls this function once in
    each process. A further call has no effect.

    If this vLLM differs from the releases that the plug-in knows, the plug-in logs one warning and
    leaves vLLM unchanged. With CURVE or hashes-only, it raises RuntimeError instead, because vLLM's
    own publisher would send the content of prompts. Raises ValueError for a bad variable. An
    exception ends the start of vLLM."""
    options = options_of()
    if not options.publisher:
        return
    logger, version = _logger(), _version()
    reason = _take_over(options)
    if reason is None:
        return
    line = f"kvcast: vLLM {version} does not fit this plug-in (tested: {', '.join(TESTED)}): {reason}"
    if options.protects:
        raise RuntimeError(f"{line}; vLLM's own publisher has no CURVE and no hashes-only mode")
    logger.warning("%s; vLLM's own publisher stays in use", line)


def _take_over(options: Options) -> str | None:
    """Replace the constructor of the publisher "zmq". Returns the reason if the replacement is not
    possible; vLLM is then unchanged. None: success."""
    from . import _vllm_seams

    try:
        kv_events = importlib.import_module("vllm.distributed.kv_events")
        dialect = _vllm_seams.check(kv_events)
        from . import _vllm_publisher
    except _vllm_seams.SeamError as error:
        return str(error)
    except (ImportError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    registry = kv_events.EventPublisherFactory._registry
    if getattr(registry["zmq"], "kvcast", False):
        return None
    if registry["zmq"] is not kv_events.ZmqEventPublisher:
        return "another plug-in has replaced the publisher zmq"
    make = _vllm_publisher.constructor(options, dialect, _logger(), note_of(_version()))
    own = registry.pop("zmq")
    try:
        kv_events.EventPublisherFactory.register_publisher("zmq", make)
    except BaseException:
        registry["zmq"] = own
        raise
    return None


def note_of(version: str) -> str:
    """Return a text about the release, for the log line at the start."""
    if version in TESTED:
        return f"vLLM {version}"
    return f"vLLM {version}, which is not tested (tested: {', '.join(TESTED)})"


def _version() -> str:
    # A local version, such as 0.33.0+cpu, has the same Python files.
    return str(getattr(importlib.import_module("vllm"), "__version__", "unknown")).split("+")[0]


def _logger():
    import logging

    # vLLM shows the lines of loggers below "vllm".
    return logging.getLogger("vllm.kvcast")


# Classes whose modules import vLLM.
_MODULES = {
    "KvcastEventPublisher": "_vllm_publisher",
    "KvcastOffloadingSpec": "_vllm_offload",
    "KvcastOffloadingManager": "_vllm_offload",
    "KvcastCachePolicy": "_vllm_cache_policy",
    "KvcastArcCachePolicy": "_vllm_cache_policy",
}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(importlib.import_module(f"kvcast.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
