"""Makes the start of a sentence encoder from a pre-trained model and plain text, in a minute and without training.

  electra build-encoder --model electra_mini --corpus-dir corpus --output start
  python run_finetuning.py --task-names sentence_embedding --init-checkpoint start ...

Word vectors of the model, whitened and weighted by rarity in the text, under its lowest layers, which change nothing
until they are trained (exchange.word_vectors). `electra_tf2.load(folder).embed(texts)` works at once.
"""

import itertools
from pathlib import Path

from absl import flags

from electra_tf2.util.errors import UserError
from electra_tf2.util.flags import run
from electra_tf2.util.progress import say


def main() -> int:
    values = flags.FLAGS
    if not (values.model and values.corpus_dir and values.output):
        raise UserError("--model, --corpus-dir and --output are needed")
    output = Path(values.output)
    if output.exists() and any(output.iterdir()):
        raise UserError(f"--output: {output} is there already, and is not empty")

    from electra_tf2.corpus.sentence_pairs import paragraphs
    from electra_tf2.corpus.text_files import Corpus
    from electra_tf2.exchange.inference import load
    from electra_tf2.exchange.sources import write_folder
    from electra_tf2.exchange.word_vectors import encoder_of_words, rarity

    model = load(values.model)
    corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
    sentences = itertools.chain.from_iterable(paragraphs(corpus, 3, 100))
    texts = list(itertools.islice(sentences, values.num_sentences))
    if not texts:
        raise UserError(f"--corpus-dir {values.corpus_dir} holds no sentences")
    weights = rarity(model.tokenizer, texts)
    made = encoder_of_words(model.source, weights, values.num_layers, values.seed)
    write_folder(output, made)
    say(f"wrote {output}: {values.num_layers} layers, rarity in {len(texts):,} sentences")
    return 0


flags.DEFINE_string("model", None, "pre-trained model: a run, a folder, a shipped model, a Hugging Face directory")
flags.DEFINE_string("corpus_dir", None, "folder of text, in which words are rare or frequent")
flags.DEFINE_string("text_field", "text", "field of JSON lines that holds a document's text")
flags.DEFINE_bool("recursive", False, "read the folders below, too")
flags.DEFINE_integer("num_sentences", 100_000, "sentences of the corpus that are counted, its first", lower_bound=1)
flags.DEFINE_integer("num_layers", 1, "layers that are kept, the lowest", lower_bound=1)
flags.DEFINE_integer("seed", 0, "seed of the random directions")
flags.DEFINE_string("output", None, "folder to write")


def command() -> None:
    run(main, __doc__)


if __name__ == "__main__":
    command()
