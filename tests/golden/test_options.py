"""Every option of the command line before its rebuilding is there, or is named here with what took its place."""

from pathlib import Path

BEFORE = Path(__file__).parent / "options.txt"
NOW = Path(__file__).parents[1] / "cli" / "golden-surface.txt"  # held against the program by tests/cli/test_surface.py

GONE = {
    "plan: --price-per-gpu-hour": "a rate times the GPU-hours that the plan shows",
    "doctor: --end": "a worker ends with its run; what is left of a run is put right by the next one",
    "sweep: --report-only": "`report NAME` with the sweep's name",
    "agree": "tests/evaluation/test_vllm_backend.py, run in the environment of vllm",
    "server up": "prefect server start, and tokenweight serve",
    "server down": "Ctrl-C",
    "server setup": "tokenweight serve, or prefect deploy --all",
}


def options(file: Path) -> dict[str, set[str]]:
    """The names of each command's options; arguments are told apart by their place and may be renamed."""
    found = {}
    for line in file.read_text("utf-8").splitlines():
        command, _, names = line.partition(": ")
        found[command] = {name for name in names.split() if name.startswith("--")}
    return found


def test_no_option_is_lost() -> None:
    now = options(NOW)
    lost = []
    for command, names in options(BEFORE).items():
        if command not in now:
            lost.append(command)
        else:
            lost += [f"{command}: {name}" for name in sorted(names - now[command])]
    assert [name for name in lost if name not in GONE] == []
