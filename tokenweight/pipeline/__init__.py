"""The store: fingerprints, records, leases. Where an artifact lives and when it may be reused."""

from tokenweight.pipeline.digests import Digests, file_sha256
from tokenweight.pipeline.identity import Identity, canonical_json
from tokenweight.pipeline.store import RECORD, Build, State, Store, read_record, write_json

__all__ = [
    "RECORD",
    "Build",
    "Digests",
    "Identity",
    "State",
    "Store",
    "canonical_json",
    "file_sha256",
    "read_record",
    "write_json",
]
