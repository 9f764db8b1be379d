"""The automations that look after runs which died."""

from datetime import timedelta

from prefect.client.schemas.objects import StateType

from tokenweight.flows.automations import HEARTBEAT_SECONDS, automations


def test_only_our_runs_are_touched() -> None:
    for automation in automations():
        related = automation.trigger.match_related.model_dump()
        assert related["prefect.resource.id"] == "prefect.tag.tokenweight"


def test_a_run_is_silent_after_three_heartbeats_without_any_event() -> None:
    silent, _ = automations()
    assert silent.trigger.expect == {"prefect.flow-run.*"}
    assert silent.trigger.within >= timedelta(seconds=3 * HEARTBEAT_SECONDS)
    assert silent.actions[0].state is StateType.CRASHED


def test_a_run_that_always_crashes_ends() -> None:
    _, crashed = automations()
    assert crashed.trigger.match.model_dump()["prefect.run-count"] == ["1", "2", "3", "4"]
    assert crashed.actions[0].state is StateType.SCHEDULED
