"""Records to tables: a pure function of a manifest and of artifact directories.

Start at :func:`tokenweight.reports.build.build_report` and :func:`tokenweight.reports.writing.write_report`.
Nothing here imports torch, Prefect, or anything that trains or evaluates.
"""
