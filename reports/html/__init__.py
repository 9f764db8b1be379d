"""Reports as one page that opens from a file: tables to sort, and behind each number what it was made from.

Start at :func:`tokenweight.reports.html.page.render`. A pure function of reports, recipes and artifacts: no clock.
"""
