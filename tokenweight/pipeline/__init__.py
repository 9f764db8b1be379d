"""The store: fingerprints, records, leases. Where an artifact lives and when it may be reused."""
