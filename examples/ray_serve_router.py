"""A request router for Ray Serve (ray.serve.request_router, Ray 2.60) that asks a kvcast router.

    @serve.deployment(request_router_config=RequestRouterConfig(
        request_router_class="ray_serve_router.KvcastRequestRouter",
        request_router_kwargs={"config": config, "tokenize": "my_module:tokenize", "model": "my-model"}))
    class Engine:
        def record_replica_metadata(self):
            return {"kvcast_source": "engine-0"}  # the name of this replica's source in `config`

Each process with a handle of the deployment opens a kvcast router. Rules of the example:
- kvcast chooses only among the candidates of Serve. The other candidates have the second rank: Serve takes one of them
  if the chosen replica is full.
- A replica that kvcast does not know has the second rank.
- Serve's shortest queue decides if kvcast cannot route a request: a body without a prompt, an error of `tokenize`, an
  unknown model, no source that is ready, no known replica.
- Serve also reports the end of an attempt that a full replica rejects. The load of the next attempt may then end early.
- kvcast drops the load of a request that ends without a report after booking_lifetime_ms.

SPDX-License-Identifier: Apache-2.0
"""
import logging
import pkgutil

import kvcast

try:
    from ray.serve.request_router import RequestRouter
except ImportError:
    RequestRouter = object  # a stand-in, for tests without Ray

logger = logging.getLogger(__name__)


def member(body, name):
    """Returns a member of a request's body, which is a dict or an object with attributes."""
    return body.get(name) if isinstance(body, dict) else getattr(body, name, None)


def body_of(pending_request):
    """Returns the argument that is the body of a completion or a chat. None: no argument is a body."""
    arguments = [*pending_request.args, *pending_request.kwargs.values()]
    return next((body for body in arguments if member(body, "prompt") or member(body, "messages")), None)


class KvcastRequestRouter(RequestRouter):
    def initialize_state(self, config, tokenize, model=""):
        """Serve passes request_router_kwargs, which must be JSON.

        config: the configuration of kvcast.open_router.
        tokenize: "MODULE:NAME" of a coroutine function. It returns the token ids that the engine computes for a body.
        model: the member `model` of the sources. "": the sources have no such member.
        """
        self.router = kvcast.open_router(config)
        self.tokenize, self.model = pkgutil.resolve_name(tokenize), model

    def source_of(self, replica):
        """Returns the name of the replica's source. None: the replica has no source."""
        return replica.replica_metadata.get("kvcast_source")

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        """Returns lists of replicas, the most preferred list first."""
        chosen = None
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # if all replicas are full, Serve waits
            try:
                chosen = await self.choose(candidate_replicas, pending_request)
            except Exception:  # Serve never completes a request if choose_replicas raises
                logger.warning("kvcast cannot route a request", exc_info=True)
        if chosen is None:
            return [candidate_replicas]
        return [[chosen], [replica for replica in candidate_replicas if replica is not chosen]]

    async def choose(self, candidate_replicas, pending_request):
        """Returns the replica that kvcast chooses, and counts the request as its load. None: no replica."""
        body = body_of(pending_request)
        known = {worker["name"] for worker in self.router.workers()}
        replicas = {self.source_of(replica): replica for replica in candidate_replicas}
        replicas = {source: replica for source, replica in replicas.items() if source in known}
        if body is None or not replicas:
            return None
        arguments = {"token_ids": await self.tokenize(body), "model": self.model,
                     "lora_name": pending_request.metadata.multiplexed_model_id,
                     "cache_salt": member(body, "cache_salt") or "",
                     "request_id": pending_request.metadata.internal_request_id}
        worker = self.router.route(workers=replicas, **arguments)["worker"]
        sources = {replica.replica_id: source for source, replica in replicas.items()}
        pending_request.kvcast_decision = worker, sources, arguments
        return replicas[worker]

    def on_request_routed(self, pending_request, replica_id, result):
        """Moves the load if another replica than the chosen one has taken the request."""
        worker, sources, arguments = getattr(pending_request, "kvcast_decision", (None, {}, {}))
        source = sources.get(replica_id)
        if source == worker:
            return
        pending_request.kvcast_decision = source, sources, arguments
        self.on_request_completed(replica_id, pending_request.metadata.internal_request_id)
        if source is not None:
            try:
                self.router.route(workers=[source], **arguments)
            except kvcast.KvcastError:
                logger.warning("kvcast cannot count a request", exc_info=True)

    def on_request_completed(self, replica_id, internal_request_id):
        """Ends the load of the request in kvcast, if it has one."""
        try:
            self.router.feedback(request_id=internal_request_id, event="finished")
        except (kvcast.NotFoundError, kvcast.ClosedError):
            pass  # kvcast did not route the request, or the load has ended, or kvcast is closed
