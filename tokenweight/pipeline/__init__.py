"""The store: fingerprints, records, leases. Where an artifact lives and when it may be reused."""

from tokenweight.pipeline.digests import Digests as Digests
from tokenweight.pipeline.digests import file_sha256 as file_sha256
from tokenweight.pipeline.stage import Identity as Identity
from tokenweight.pipeline.stage import canonical_json as canonical_json
from tokenweight.pipeline.store import Build as Build
from tokenweight.pipeline.store import Store as Store
from tokenweight.pipeline.store import read_record as read_record
