"""One Prefect task per stage: fingerprint, store, library, record."""
