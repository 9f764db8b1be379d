"""For all tests: quiet libraries, a Prefect home of their own, and threads that do not spin."""

import os
import tempfile

from tokenweight.embedded import quiet

quiet()
os.environ.setdefault("PREFECT_HOME", tempfile.mkdtemp(prefix="tokenweight-prefect-"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
