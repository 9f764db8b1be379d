"""RULER's haystack of essays, collected from the web as its own script collects it (download_paulgraham_essay.py).

The same rules, so that the same pages give the same text: a list of addresses, of which text files are taken as they
are and of web pages the first `font` element, turned into Markdown; text files first, each kind in the order of names,
joined without separator. One rule differs: the script goes on without a page that does not answer, and so gives another
haystack; here nothing is made then.
"""

from __future__ import annotations

from pathlib import Path

from tokenweight.console_progress import console_progress
from tokenweight.errors import UserError

LIST_URL = (
    "https://raw.githubusercontent.com/NVIDIA/RULER/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/"
    "scripts/data/synthetic/json/PaulGrahamEssays_URLs.txt"
)


def collect(directory: Path) -> str:
    """The text of all essays; `directory` takes what is fetched on the way.

    Raises:
        UserError: a page could not be fetched or read.
    """
    import html2text
    from bs4 import BeautifulSoup

    from tokenweight.evaluation.ruler.downloads import download

    writer = html2text.HTML2Text()
    writer.ignore_images = writer.ignore_tables = True
    writer.mark_code = False
    download((LIST_URL,), directory / "addresses.txt")
    urls = [line.strip() for line in (directory / "addresses.txt").read_text().splitlines() if line.strip()]
    essays: dict[tuple[bool, str], str] = {}
    with console_progress() as progress:
        for number, url in enumerate(urls):
            file = directory / f"{number}.raw"
            download((url,), file)
            is_page = ".html" in url
            name = url.rpartition("/")[2].replace(".html", ".txt")
            try:
                if is_page:
                    page = BeautifulSoup(file.read_bytes().decode("unicode_escape"), "html.parser")
                    text = writer.handle(str(page.find("font")))
                else:
                    text = file.read_bytes().decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"{url}: cannot be read ({error.reason}); give a haystack of your own") from None
            # The script writes each essay to a file and reads it as text: all line ends become one kind.
            essays[is_page, name] = text.replace("\r\n", "\n").replace("\r", "\n")
            progress(number + 1, len(urls), "essays")
    return "".join(essays[key] for key in sorted(essays))
