"""Every target that can be reproduced has a deployment of its own flow."""

from pathlib import Path

import yaml

from tokenweight.tasks.collect import ALL, ready_targets

ROOT = Path(__file__).parents[2]


def test_every_target_has_a_deployment() -> None:
    deployments = {entry["name"]: entry for entry in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}
    targets = [*ready_targets(), ALL]
    found = [name for name in deployments if name.startswith("reproduce-")]
    assert sorted(found) == sorted(f"reproduce-{target}" for target in targets)
    flows = (ROOT / "flows" / "reproduce.py").read_text()
    for target in targets:
        name = f"reproduce_{target.replace('-', '_')}"
        assert deployments[f"reproduce-{target}"]["entrypoint"] == f"tokenweight.flows.reproduce:{name}"
        assert f'{name} = _flow_of("{target}")' in flows
