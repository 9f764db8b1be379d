"""A build step of prefect.yaml for `prefect deploy`: schedules that cost compute start paused, and stay as people set them.

A schedule without `active` would be active at once; `active: false` would pause again, at each deploy, what somebody has
resumed. So `active: "{{ schedule.active }}"` is filled in by this step: false at first, left out afterwards.
"""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound


async def paused_at_first(deployment: str) -> dict[str, bool]:
    """`{"active": False}` where the server has no such FLOW/DEPLOYMENT yet, else nothing."""
    async with get_client() as client:
        try:
            await client.read_deployment_by_name(deployment)
        except ObjectNotFound:
            return {"active": False}
    return {}
