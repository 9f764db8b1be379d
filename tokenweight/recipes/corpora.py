"""The paper's corpora on the hub, at pinned revisions, in formats that need no loading script; the judge's novel."""

from tokenweight.recipes.schema import HubCorpus, NovelCorpus

# Parquet mirror of deepmind/pg19, whose own repository is a loading script that `datasets` no longer runs.
PG19 = HubCorpus(repo_id="emozilla/pg19", revision="c021754c8e01c5b1cc83a1f549c1f97fbbb756b8")

SLIMPAJAMA = HubCorpus(
    repo_id="cerebras/SlimPajama-627B",
    revision="2d0accdd58c5d5511943ca1f5ff0e3eb5e293543",
    domain_field="meta.redpajama_set_name",
)

FINEWEB = HubCorpus(
    repo_id="HuggingFaceFW/fineweb",
    revision="cd850543a88ba055067841ce91d2669344ff7b7a",
    subset="sample-100BT",
    validation_split=None,
)

# Texts of the synthetic novel that no model here was trained on: a seed of their own.
JUDGE = NovelCorpus(seed=777, documents=32, document_tokens=65_536)
