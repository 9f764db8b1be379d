"""Question answering: the question's documents among others of the same data set (Appendix C)."""

from __future__ import annotations

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.sources import Question
from tokenweight.evaluation.ruler.tasks import QA_PREFIX, QA_TEMPLATE, Profile


class DocumentQuestions(Family):
    """Draws samples of `size` documents; sample i asks question i."""

    step = first_size = 10
    minimum = 1

    def __init__(self, found: tuple[Question, ...], documents: tuple[str, ...], samples: int, profile: Profile) -> None:
        if len(found) < samples:
            raise UserError(
                f"ruler.samples: {samples} asked for, the question file holds {len(found)}; lower it or give more"
            )
        self._questions = found
        self._documents = list(documents)
        self._official = profile == "official-2024"
        self.maximum = len(documents)

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """Question `index` with `size` documents."""
        question = self._questions[max(index, 0)]
        documents = self._chosen(draws, question, size)
        context = "\n\n".join(f"Document {number}:\n{text}" for number, text in enumerate(documents, start=1))
        prompt = QA_TEMPLATE.format(context=context, query=question.query) + QA_PREFIX
        return Draft(prompt, QA_PREFIX, question.answers, sizing_suffix=f" {question.answers}")

    def _chosen(self, draws: Draws, question: Question, size: int) -> list[str]:
        if size >= len(self._documents):
            return self._all(draws)
        own, related = question.own, question.related
        if size < len(own):
            chosen = self._fewer_than_own(question, size)
        elif size - len(own) > len(related):
            taken = {*own, *related}
            others = [i for i in range(len(self._documents)) if i not in taken]
            chosen = own + related + draws.python.sample(others, size - len(own) - len(related))
        else:
            chosen = own + draws.python.sample(related, size - len(own))
        return draws.shuffled([self._documents[i] for i in chosen])

    def _all(self, draws: Draws) -> list[str]:
        shuffled = draws.shuffled(self._documents)
        if self._official:  # the 2024 program shuffles its own list, so that later indices point elsewhere
            self._documents = shuffled
        return shuffled

    def _fewer_than_own(self, question: Question, size: int) -> list[int]:
        if self._official:
            raise ValueError("the 2024 program needs all documents that come with the question")
        others = [i for i in question.own if i not in question.gold]
        kept = {*question.gold, *others[: max(0, size - len(question.gold))]}
        return [i for i in question.own if i in kept]
