"""The store: fingerprints, records, leases. Where an artifact lives and when it may be reused."""

from tokenweight.store.digests import Digests, file_sha256
from tokenweight.store.fingerprint import Identity, canonical_json
from tokenweight.store.store import RECORD, Build, State, Store, read_record, write_json

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
