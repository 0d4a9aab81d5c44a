"""A router for the vLLM production stack (github.com/vllm-project/production-stack) that asks a kvcast router.

The stack has no option for a class of another package. Replace its router after initialize_all, and then run its app:

    from vllm_router.app import app, initialize_all
    from vllm_router.parsers.parser import parse_args

    args = parse_args()
    initialize_all(app, args)
    with kvcast.open_router(config) as router:
        app.state.router = app.state.callbacks = KvcastRouter(router, tokenize)
        uvicorn.run(app, host=args.host, port=args.port)

Rules of the example:
- The name of a source in `config` is the URL of the stack's endpoint. Its member `model` is the name of the base model.
- kvcast chooses only among the endpoints that the stack lists. The stack lists those with the requested model.
- An endpoint that kvcast does not know gets a request only if every known endpoint has more requests in progress.
- The least loaded endpoint gets a request whose body kvcast cannot route: a body without a prompt, an error of
  `tokenize`, an unknown model, no source that is ready.
- The stack reports the end only of requests that succeed. kvcast drops the load of other requests after
  booking_lifetime_ms.

SPDX-License-Identifier: Apache-2.0
"""
import logging

import kvcast

try:
    # The stack passes the body of a request only to subclasses of its own classes that read the body.
    from vllm_router.routers.routing_logic import PrefixAwareRouter
except ImportError:
    PrefixAwareRouter = object  # a stand-in, for tests without the stack

logger = logging.getLogger(__name__)


def in_progress(stats):
    """Returns the number of requests in progress. The stack has no stats of an endpoint without requests."""
    return stats.in_prefill_requests + stats.in_decoding_requests if stats else 0


def model_and_lora(endpoints, name):
    """Returns the base model and the LoRA adapter ("": none) of the name in a request."""
    for endpoint in endpoints:
        info = (getattr(endpoint, "model_info", None) or {}).get(name)
        if info is not None and info.parent:
            return info.parent, name
    return name, ""


class KvcastRouter(PrefixAwareRouter):
    """The routing interface of the stack, and its callbacks.

    router: an open kvcast.Router. The caller closes it.
    tokenize: a coroutine function. It returns the token ids that the engine computes for the body of a request: for a
        chat, the ids after the chat template.
    """

    max_instance_failover_reroute_attempts = 0  # after an error, the number of other endpoints that the stack tries

    def __init__(self, router, tokenize):
        self.router, self.tokenize = router, tokenize

    def route_request(self, endpoints, engine_stats, request_stats, request, request_json=None):
        """Returns the URL of an endpoint, or for a request with a body, a coroutine that returns the URL.

        The stack passes no body for audio.
        """
        self.end(request)  # the stack routes a request again if an endpoint fails
        if request_json is None:
            return self.least_loaded(endpoints, request_stats)
        return self.route_body(endpoints, request_stats, request, request_json)

    def least_loaded(self, endpoints, request_stats, known=frozenset()):
        """Returns the URL of the endpoint with the fewest requests in progress. A known endpoint wins a tie."""
        return min((in_progress(request_stats.get(endpoint.url)), endpoint.url not in known, endpoint.url)
                   for endpoint in endpoints)[2]

    async def route_body(self, endpoints, request_stats, request, body):
        if not (body.get("prompt") or body.get("messages")):
            return self.least_loaded(endpoints, request_stats)
        try:
            token_ids = await self.tokenize(body)
            known = {worker["name"] for worker in self.router.workers()} & {endpoint.url for endpoint in endpoints}
            least = self.least_loaded(endpoints, request_stats, known)
            if least not in known:  # always true if no endpoint is known, so `workers` below is never empty
                return least
            model, lora = model_and_lora(endpoints, body.get("model") or "")
            decision = self.router.route(token_ids, model=model, lora_name=lora, workers=known,
                                         cache_salt=body.get("cache_salt") or "")
        except Exception:  # a fault here must not fail a request that an engine can serve
            logger.warning("kvcast cannot route a request", exc_info=True)
            return self.least_loaded(endpoints, request_stats)
        request.state.kvcast_request_id = decision["request_id"]
        return decision["worker"]

    def end(self, request):
        """Ends the load of the request in kvcast, if it has one."""
        request_id = getattr(request.state, "kvcast_request_id", None)
        if request_id is None:
            return
        try:
            self.router.feedback(request_id=request_id, event="finished")
        except (kvcast.NotFoundError, kvcast.ClosedError):
            pass  # the load has ended, or kvcast is closed

    def pre_request(self, request, request_body, request_json):
        """A callback of the stack. None: the stack serves the request."""
        return None

    def post_request(self, request, response_content):
        """A callback of the stack, after the last byte of an answer."""
        self.end(request)
