"""A training in a process of its own that takes TERM as Prefect's engine does; its arguments: request, folder, execution."""

TRAIN = """
import signal, sys
from pathlib import Path
from tokenweight.recipes.schema import Execution
from training_calls import TrainRequest
from training_calls import train

class Terminated(BaseException): ...
def at_term(number, frame): raise Terminated  # as Prefect's engine does
signal.signal(signal.SIGTERM, at_term)
train(TrainRequest.model_validate_json(sys.argv[1]), Path(sys.argv[2]), Execution.model_validate_json(sys.argv[3]),
      lambda *args: print(*args, flush=True))
"""
