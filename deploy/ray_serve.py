"""duo on Ray Serve: equal replicas, and more of them while requests wait.

    pip install 'duo-llama[server]' 'ray[serve]'
    serve run ray_serve:app model=/models/70B.gguf draft=/models/8B.gguf n_ctx=16384 cpus=8 most=4

Ray holds the queue: a replica gets as many requests as it writes at once, and one that is lost loses none that waits.
"""

from typing import Any

from pydantic import BaseModel
from ray import serve
from starlette.applications import Starlette
from starlette.routing import Mount

from duo import Duo
from duo.server.app import make_app
from duo.server.service import Service
from duo.server.settings import ServerSettings


class Args(BaseModel):
    """What `serve run` may say. Without models it is the demo pair."""

    model: str | None = None
    draft: str | None = None
    n_ctx: int = 4096
    n_parallel: int = 4  # texts that a replica writes at once
    cpus: float = 1  # of a replica; Ray tells it, and duo takes as many threads
    gpus: float = 0
    least: int = 1  # replicas
    most: int = 1


async def _asgi(scope: Any, receive: Any, send: Any) -> None:
    await serve.get_replica_context().servable_object.asgi(scope, receive, send)


@serve.deployment(health_check_period_s=5, graceful_shutdown_timeout_s=60)
@serve.ingress(Starlette(routes=[Mount("", _asgi)]))
class Replica:
    def __init__(self, a: Args) -> None:
        self._service = Service(ServerSettings.of({"alias": "duo", "ui": False}, "duo"))
        models = {k: v for k, v in (("model", a.model), ("draft", a.draft)) if v}
        self._service.loaded(Duo(**models, n_ctx=a.n_ctx, n_parallel=a.n_parallel))
        self.asgi = make_app(self._service)

    def check_health(self) -> None:
        """Ray replaces a replica that raises."""
        _ = self._service.duo.engine.usage
        target = self._service.duo.engine.target
        if target is not None and target.lost_file:
            raise RuntimeError(f"{target.lost_file} can no longer be read")

    def __del__(self) -> None:
        self._service.close()


def app(args: Args) -> serve.Application:  # Ray reads this annotation, so it must be no string
    return Replica.options(
        ray_actor_options={"num_cpus": args.cpus, "num_gpus": args.gpus},
        max_ongoing_requests=args.n_parallel,
        max_queued_requests=8 * args.n_parallel * args.most,  # more get status 503
        autoscaling_config={
            "min_replicas": args.least, "max_replicas": args.most, "target_ongoing_requests": args.n_parallel,
        },
    ).bind(args)  # fmt: skip
