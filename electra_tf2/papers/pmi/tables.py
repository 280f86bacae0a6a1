"""The table of PMI-masking, for `electra build-table`."""

from electra_tf2.corpus.tables import Option, Table, TableInputs
from electra_tf2.papers.pmi.vocabulary import KIND, SCORES, vocabulary_of, write_vocabulary


def build(inputs: TableInputs, output: str, size: int, min_count: int, score: str) -> str:
    """Counts and writes the table; returns what it holds, for the user."""
    vocabulary = vocabulary_of(inputs, size, min_count, score)
    write_vocabulary(output, vocabulary, inputs.vocab_file)
    return f"{len(vocabulary.words):,} n-grams\n{vocabulary.examples(inputs.tokens)}"


TABLES = {
    KIND: Table(
        "n-grams of 2 to 5 words that go together more than by chance (PMI-masking; the records are read twice)",
        build,
        {
            "size": Option(800_000, "number of n-grams: half of 2 words, a quarter of 3, an eighth of 4 and 5", 8),
            "min_count": Option(11, "least number of times that an n-gram occurs"),
            "score": Option("pmi", "the paper's, or pmi_freq, which prefers frequent ones", choices=SCORES),
        },
    )
}
