"""One module of tokenweight as other code, here and in the Python processes that are started from here."""

import importlib.abc
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[1]


class MutatedModule(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Gives its own code where the one module is imported or run by `python -m`; everything else is as installed."""

    def __init__(self, room: str, file: str, source: str) -> None:
        self.name, self.source = f"tokenweight.{room}.{file.removesuffix('.py')}", source
        self.path = str(ROOT / "tokenweight" / room / file)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Our own specification for the one module."""
        return importlib.util.spec_from_loader(fullname, self, origin=self.path) if fullname == self.name else None

    def get_source(self, fullname: str) -> str:
        """The mutated source."""
        return self.source

    def get_code(self, fullname: str) -> CodeType:
        """The mutated code, under the name of the file that it replaces."""
        return self.source_to_code(self.source, self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run it as the module."""
        module.__file__ = self.path
        super().exec_module(module)


def mutate_module(room: str, file: str, source: str) -> None:
    """Let `source` take the place of a room's file; other processes read a sitecustomize.py before anything else."""
    sys.meta_path.insert(0, MutatedModule(room, file, source))
    folder = Path(tempfile.mkdtemp())
    code = f"""import sys
sys.path.append({str(ROOT / "scripts")!r})
from mutated_module import MutatedModule
sys.meta_path.insert(0, MutatedModule({room!r}, {file!r}, {source!r}))
"""
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    places = (str(folder), str(ROOT), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
