"""The 16 English tasks: category, official prompt, tokens to generate, metric, and which keep only a first line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenweight.errors import UserError

Category = Literal[
    "single_document_qa",
    "multi_document_qa",
    "summarisation",
    "few_shot_learning",
    "synthetic_tasks",
    "code_completion",
]
Metric = Literal["qa_f1", "rouge_l", "classification", "retrieval", "count", "code_similarity"]
FirstLine = Literal["lceg", "thudm"]

_PASSAGES = (
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "The following are given passages.\n{context}\n\n"
    "Answer the question based on the given passages. Only give me the answer and do not output any other words.\n\n"
    "Question: {input}\nAnswer:"
)
_STORY = (  # "asconcisely" is the official spelling
    "You are given a story, which can be either a novel or a movie script, and a question. Answer the question "
    "asconcisely as you can, using a single phrase if possible. Do not provide any explanation.\n\n"
    "Story: {context}\n\n"
    "Now, answer the question based on the story asconcisely as you can, using a single phrase if possible. "
    "Do not provide any explanation.\n\nQuestion: {input}\n\nAnswer:"
)
_ARTICLE_RULES = (
    "as concisely as you can, using a single phrase or sentence if possible. If the question cannot be answered "
    'based on the information in the article, write "unanswerable". If the question is a yes/no question, answer '
    '"yes", "no", or "unanswerable". Do not provide any explanation.\n\n'
)
_ARTICLE = (
    f"You are given a scientific article and a question. Answer the question {_ARTICLE_RULES}"
    "Article: {context}\n\n"
    f" Answer the question based on the above article {_ARTICLE_RULES}"
    "Question: {input}\n\nAnswer:"
)
_TEXT = (
    "Read the following text and answer briefly.\n\n{context}\n\n"
    "Now, answer the following question based on the above text, only give me the answer and do not output any "
    "other words.\n\nQuestion: {input}\nAnswer:"
)
_REPORT = (
    "You are given a report by a government agency. Write a one-page summary of the report.\n\nReport:\n{context}\n\n"
    "Now, write a one-page summary of the report.\n\nSummary:"
)
_MEETING = (
    "You are given a meeting transcript and a query containing a question or instruction. Answer the query in one or "
    "more sentences.\n\nTranscript:\n{context}\n\n"
    "Now, answer the query based on the above meeting transcript in one or more sentences.\n\n"
    "Query: {input}\nAnswer:"
)
_NEWS = (
    "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n{context}\n\n"
    "Now, write a one-page summary of all the news.\n\nSummary:"
)
_QUESTION_TYPE = (
    "Please determine the type of the question below. Here are some examples of questions.\n\n{context}\n{input}"
)
_TRIVIA = (
    "Answer the question based on the given passage. Only give me the answer and do not output any other words. "
    "The following are some examples.\n\n{context}\n\n{input}"
)
_DIALOGUE = (
    "Summarize the dialogue into a few short sentences. The following are some examples.\n\n{context}\n\n{input}"
)
_COUNT = (  # the trailing space is official, here and in _RETRIEVAL
    "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please carefully read "
    "these paragraphs and determine how many unique paragraphs there are after removing duplicates. In other words, "
    "how many non-repeating paragraphs are there in total?\n\n{context}\n\n"
    "Please enter the final count of unique paragraphs after removing duplicates. The output format should only "
    "contain the number, such as 1, 2, 3, and so on.\n\nThe final answer is: "
)
_RETRIEVAL = (
    "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the abstract is "
    "from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\n"
    "Please enter the number of the paragraph that the abstract is from. The answer format must be like "
    '"Paragraph 1", "Paragraph 2", etc.\n\nThe answer is: '
)
_CODE = "Please complete the code given below. \n{context}Next line of code:\n"
_REPOSITORY_CODE = "Please complete the code given below. \n{context}{input}Next line of code:\n"


@dataclass(frozen=True)
class LongBenchTask:
    """One English task of LongBench with its official constants."""

    name: str
    category: Category
    template: str
    max_new_tokens: int
    metric: Metric

    def takes_first_line(self, rule: FirstLine) -> bool:
        """Whether only the prediction's first line is scored.

        thudm: LongBench's own code (few-shot tasks only). lceg: the code the paper follows, all question answering,
        few-shot and synthetic tasks; for base models the largest single effect on the score.
        """
        if self.category == "few_shot_learning":
            return True
        return rule == "lceg" and self.category in ("single_document_qa", "multi_document_qa", "synthetic_tasks")


TASKS = {
    task.name: task
    for task in (
        LongBenchTask("narrativeqa", "single_document_qa", _STORY, 128, "qa_f1"),
        LongBenchTask("qasper", "single_document_qa", _ARTICLE, 128, "qa_f1"),
        LongBenchTask("multifieldqa_en", "single_document_qa", _TEXT, 64, "qa_f1"),
        LongBenchTask("hotpotqa", "multi_document_qa", _PASSAGES, 32, "qa_f1"),
        LongBenchTask("2wikimqa", "multi_document_qa", _PASSAGES, 32, "qa_f1"),
        LongBenchTask("musique", "multi_document_qa", _PASSAGES, 32, "qa_f1"),
        LongBenchTask("gov_report", "summarisation", _REPORT, 512, "rouge_l"),
        LongBenchTask("qmsum", "summarisation", _MEETING, 512, "rouge_l"),
        LongBenchTask("multi_news", "summarisation", _NEWS, 512, "rouge_l"),
        LongBenchTask("trec", "few_shot_learning", _QUESTION_TYPE, 64, "classification"),
        LongBenchTask("triviaqa", "few_shot_learning", _TRIVIA, 32, "qa_f1"),
        LongBenchTask("samsum", "few_shot_learning", _DIALOGUE, 128, "rouge_l"),
        LongBenchTask("passage_count", "synthetic_tasks", _COUNT, 32, "count"),
        LongBenchTask("passage_retrieval_en", "synthetic_tasks", _RETRIEVAL, 32, "retrieval"),
        LongBenchTask("lcc", "code_completion", _CODE, 64, "code_similarity"),
        LongBenchTask("repobench-p", "code_completion", _REPOSITORY_CODE, 64, "code_similarity"),
    )
}


def longbench_task(name: str) -> LongBenchTask:
    """The task of that name.

    Raises:
        UserError: no such English task.
    """
    if name not in TASKS:
        raise UserError(f"longbench task {name!r}: unknown; choose one of {', '.join(TASKS)}")
    return TASKS[name]
