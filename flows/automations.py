"""Automations for runs that died: marked as crashed when they fall silent, and run again, for no stage is lost."""

from __future__ import annotations

from datetime import timedelta

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

TAG = "tokenweight"  # of the deployments in prefect.yaml: what else runs on the server is left alone
HEARTBEAT_SECONDS = 30  # PREFECT_FLOWS_HEARTBEAT_FREQUENCY of these deployments, Prefect's least
ATTEMPTS = 5  # those that `server down` or a dead worker ended are among them


def automations() -> list[AutomationCore]:
    """Both, in the order in which they work."""
    return [_silent(), _crashed()]


def _ours() -> ResourceSpecification:
    return ResourceSpecification({"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"})


def _silent() -> AutomationCore:
    return AutomationCore(
        name="tokenweight: silent runs have crashed",
        description=f"A run without an event in {3 * HEARTBEAT_SECONDS} s (three heartbeats) is marked as crashed.",
        trigger=EventTrigger(
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            match_related=_ours(),
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=3 * HEARTBEAT_SECONDS),
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                force=False,
                state=StateType.CRASHED,
                message="no heartbeat: the process or its machine is gone",
            )
        ],
    )


def _crashed() -> AutomationCore:
    return AutomationCore(
        name="tokenweight: crashed runs run again",
        description=f"Up to {ATTEMPTS} attempts; a run that goes on finds its finished stages in the store.",
        trigger=EventTrigger(
            match=ResourceSpecification(
                {
                    "prefect.resource.id": "prefect.flow-run.*",
                    "prefect.run-count": [str(attempt) for attempt in range(1, ATTEMPTS)],
                }
            ),
            match_related=_ours(),
            expect={"prefect.flow-run.Crashed"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            ChangeFlowRunState(
                name="AwaitingRetry", force=False, state=StateType.SCHEDULED, message="the attempt before crashed"
            )
        ],
    )
