"""The paths of REST, each a few lines over what the commands use too.

Owns paths, status codes and the token; what is shown is `link_report`'s, what is asked for goes through
`workers.asking` to all workers of the link, so any of them may be asked. 404 for what is not there, 409 for
what makes no sense now, 403 for a wrong Host, 503 while a cluster does not answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPBearer

from protocol.errors import ProtocolError
from replicator.link_report import LinkReport, only
from replicator.link_standing import NOT_RUNNING
from replicator.rest.hosts import refusal
from replicator.rest.models import (
    Done,
    Groups,
    Link,
    LinkName,
    Partition,
    Problem,
    Standing,
    Topic,
    TopicLatency,
    Values,
    Why,
    Worker,
)
from replicator.rest.page import page_of
from replicator.rest.reports import Reports
from replicator.settings import LinkSettings
from replicator.workers import asking
from replicator.workers.control import Scope

_BY = "REST"
_BEARER = HTTPBearer(
    auto_error=False,
    description="the token of --rest-token-file, if there is one; HTTPS with --rest-keystore",
)

Status = Callable[[str], Mapping[str, Any]]
Number = Annotated[int, Path(ge=0)]
DryRun = Annotated[bool, Query(description="say what would happen, and change nothing")]


def make_app(
    links: Mapping[str, LinkSettings], status: Status, token: str = "", *, any_host: bool = False
) -> FastAPI:
    """`status` is how a link stands in this process; with `token` each request has to carry it, without only
    requests to a name of this machine itself are answered, or to any name with `any_host`."""

    app = FastAPI(
        title="isthmus links",
        version="1",
        summary="How the links of this process stand, and what people want of them.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(_BEARER)],  # for the page; who may ask is looked at in `let_in`
        responses={code: {"model": Problem} for code in (401, 403, 404, 409, 503)},
    )

    @app.middleware("http")
    async def let_in(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Before anything is read of a body, which may be of any size."""
        if token:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), token.encode()):
                return JSONResponse({"detail": "this needs the header Authorization: Bearer TOKEN"}, 401)
            return await answer(request)
        why = None if any_host else refusal(request.headers.get("host", ""))
        return await answer(request) if why is None else JSONResponse({"detail": why}, 403)

    @app.exception_handler(ProtocolError)
    async def away(_: Request, error: ProtocolError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503)

    @app.exception_handler(asking.NotAsked)
    async def senseless(_: Request, error: asking.NotAsked) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> str:
        return page_of(app.openapi())

    @app.get("/openapi.json", include_in_schema=False)
    async def schema() -> dict[str, Any]:
        return app.openapi()

    def named(link: str) -> LinkSettings:
        found = links.get(link) or next((one for one in links.values() if _plain(one.name) == link), None)
        if found is None:
            raise HTTPException(404, f"this process has no link {link}; it has {', '.join(links)}")
        return found

    reports = Reports()
    _reading(app, links, status, named, reports)
    _asking(app, named, reports)
    return app


def _plain(link: str) -> str:
    return link.replace("->", "-to-")


def _reading(
    app: FastAPI,
    links: Mapping[str, LinkSettings],
    status: Status,
    named: Callable[[str], LinkSettings],
    reports: Reports,
) -> None:
    @app.get("/v1/links", tags=["status"])
    async def list_links() -> list[LinkName]:
        """All links of this process."""
        return [
            LinkName(link=name, problems=found["problems"], **_standing(found).model_dump())
            for name in links
            for found in (status(name),)
        ]

    @app.get("/v1/links/{link}", tags=["status"])
    async def get_link(link: str) -> Link:
        """All workers and partitions; `link` is `source->target`, or `source-to-target`."""
        name = named(link).name
        report = await reports.of(named(link))
        standing, own = Standing.model_validate(report.standing), _standing(status(name))
        if standing.state == NOT_RUNNING:  # this process may not have been able to say so at the target
            standing = own
        return Link(
            link=name,
            standing=standing,
            workers=[Worker.model_validate(one) for one in report.workers],
            partitions=_partitions(report),
            differences=report.differences,
            source_problem=report.source_problem,
            groups=Groups.model_validate(report.groups) if report.groups else None,
            latencies={
                topic: TopicLatency.model_validate(found) for topic, found in report.latencies.items()
            },
            settings_changed=report.settings,
        )

    async def of_topic(link: str, topic: str) -> Topic:
        report = await reports.of(named(link))
        found = _partitions(only(report, topic))
        if not found:
            raise HTTPException(404, f"nothing of topic {topic} was copied by {link}")
        late = report.latencies.get(topic)
        latency = TopicLatency.model_validate(late) if late is not None else None
        return Topic(topic=topic, latency=latency, partitions=found)

    @app.get("/v1/links/{link}/topics/{topic}", tags=["status"])
    async def get_topic(link: str, topic: str) -> Topic:
        """A source topic."""
        return await of_topic(link, topic)

    @app.get("/v1/links/{link}/topics/{topic}/partitions/{partition}", tags=["status"])
    async def get_partition(link: str, topic: str, partition: Number) -> Partition:
        """A source partition."""
        for one in (await of_topic(link, topic)).partitions:
            if one.partition == partition:
                return one
        raise HTTPException(404, f"nothing of {topic}-{partition} was copied by {link}")


def _standing(own: Mapping[str, Any]) -> Standing:
    """Of this process."""
    return Standing.model_validate(dict(own))


def _partitions(report: LinkReport) -> list[Partition]:
    return [Partition.model_validate(row) for row in report.rows]


def _asking(app: FastAPI, named: Callable[[str], LinkSettings], reports: Reports) -> None:
    places = {
        "/v1/links/{link}": "the link",
        "/v1/links/{link}/topics/{topic}": "a topic",
        "/v1/links/{link}/topics/{topic}/partitions/{partition}": "a partition",
    }
    for place, what in places.items():
        for verb, (act, text) in _ACTS.items():
            app.put(
                f"{place}/{verb}",
                tags=[verb],
                summary=f"{verb.capitalize()} {what}",
                description=text,
                operation_id=f"{verb}_{what.rpartition(' ')[2]}",
            )(_endpoint(place, act, named, reports))

    @app.put("/v1/links/{link}/settings", tags=["settings"])
    async def set_settings(link: str, body: Values, dry_run: DryRun = False) -> Done:
        """Changes settings of the running link; they hold before its file until unset, after restarts too."""
        settings = named(link)
        done = await asking.set_values(settings, body.values, unset=tuple(body.unset), dry_run=dry_run)
        reports.forget(settings.name)
        return Done.model_validate(done.to_json())


Act = Callable[[LinkSettings, Scope, str, bool], Awaitable[asking.Asked]]


async def _pause(settings: LinkSettings, scope: Scope, why: str, dry_run: bool) -> asking.Asked:
    return await asking.pause(settings, scope, asking.wish(why, _BY), dry_run=dry_run)


async def _resume(settings: LinkSettings, scope: Scope, why: str, dry_run: bool) -> asking.Asked:
    return await asking.resume(settings, scope, dry_run=dry_run)


async def _restart(settings: LinkSettings, scope: Scope, why: str, dry_run: bool) -> asking.Asked:
    return await asking.restart(settings, scope, asking.wish(why, _BY), dry_run=dry_run)


_ACTS: Mapping[str, tuple[Act, str]] = {
    "pause": (_pause, "Stands still until resumed, also after restarts; what is on its way arrives first."),
    "resume": (_resume, "Goes on where it stopped, with everything that was paused in it."),
    "restart": (_restart, "Begins anew from its progress, also what waits for a refused batch."),
}


def _endpoint(
    place: str, act: Act, named: Callable[[str], LinkSettings], reports: Reports
) -> Callable[..., Awaitable[Done]]:
    async def ask(link: str, scope: Scope, body: Why | None, dry_run: bool) -> Done:
        settings = named(link)
        done = await act(settings, scope, body.why if body else "", dry_run)
        reports.forget(settings.name)
        return Done.model_validate(done.to_json())

    async def of_link(link: str, body: Why | None = None, dry_run: DryRun = False) -> Done:
        return await ask(link, Scope(), body, dry_run)

    async def of_topic(link: str, topic: str, body: Why | None = None, dry_run: DryRun = False) -> Done:
        return await ask(link, Scope(topic), body, dry_run)

    async def of_partition(
        link: str, topic: str, partition: Number, body: Why | None = None, dry_run: DryRun = False
    ) -> Done:
        return await ask(link, Scope(topic, partition), body, dry_run)

    if "{partition}" in place:
        return of_partition
    return of_topic if "{topic}" in place else of_link
