"""A corpus of several sources: how often each is read, and the token that marks its examples.

The sources are the folders directly below the corpus directory; files beside them are the source "". TensorFlow-free.
"""

from collections.abc import Mapping, Sequence

from electra_tf2.util.errors import UserError

MOST_REPEATS = 100  # times that a source is read; more would teach its text by heart


def source_of(name: str) -> str:
    """The source of a file, which is named by its path below the corpus directory."""
    folder, slash, _ = name.partition("/")
    return folder if slash else ""


def repeats(text_bytes: Mapping[str, int], alpha: float) -> dict[str, float]:
    """How often each source is read so that its share becomes p^alpha, normalised (mBART, Liu et al. 2020, equation 1).

    The largest source is read once: the smaller ones are read more often, and nothing is left out.

    Args:
      text_bytes: of every source.
      alpha: 1 leaves the shares p as they are, 0 makes them equal.
    """
    largest = max(text_bytes.values())
    return {source: (largest / size) ** (1.0 - alpha) if size else 0.0 for source, size in text_bytes.items()}


def check_repeats(times: Mapping[str, float], alpha: float) -> None:
    """Raises UserError if a source is so small beside the others that it would be read over and over."""
    for source, count in times.items():
        if count > MOST_REPEATS:
            which = f"folder {source!r}" if source else "the files beside the folders"
            raise UserError(
                f"--mix-alpha {alpha:g} would read {which} {count:,.0f} times, and {MOST_REPEATS} are the most: it "
                "holds too little text. Raise --mix-alpha, or move these files into the folder of another source."
            )


def parse_tokens(given: Sequence[str]) -> dict[str, str]:
    """Source -> token of "source=token" each. Raises UserError."""
    tokens: dict[str, str] = {}
    for one in given:
        source, equals, token = one.partition("=")
        if not equals or not source or not token or source in tokens:
            raise UserError(f"--domain-tokens wants different sources, each as source=token, got {one!r}")
        tokens[source] = token
    if len(set(tokens.values())) < len(tokens):
        raise UserError(f"--domain-tokens: two sources have the same token: {', '.join(given)}")
    return tokens


def check_tokens(tokens: Mapping[str, str], sources: Sequence[str], vocab: Sequence[str]) -> None:
    """Raises UserError unless every source, and nothing else, has a token that no text can hold."""
    if "" in sources:
        raise UserError(
            "--domain-tokens: some files lie beside the folders of --corpus-dir and have no source; move "
            "them into a folder"
        )
    missing, unknown = set(sources) - tokens.keys(), tokens.keys() - set(sources)
    if missing or unknown:
        listed = ", ".join(repr(source) for source in sorted(sources))
        raise UserError(f"--domain-tokens must name all sources, which are {listed} (the folders below --corpus-dir)")
    for token in tokens.values():
        if token not in vocab or not (token.startswith("[unused") and token.endswith("]")):
            raise UserError(
                f"--domain-tokens: {token} must be an [unusedN] of the vocabulary, which no text holds "
                "(build_vocab.py --num-unused reserves some)"
            )
