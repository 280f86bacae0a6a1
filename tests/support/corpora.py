"""Corpora on the disk: files of text in three forms, and an archive as OpenWebText has them."""

import gzip
import io
import json
import random
import tarfile

from tests.support import golden


def write_corpus(folder, documents=150, seed=0):
    """A plain, a compressed and a JSON-lines file."""
    source = random.Random(seed)
    words = [token for token in golden.CHECKPOINT.joinpath("vocab.txt").read_text().split() if token.isalpha()]

    def document():
        return [" ".join(source.choices(words, k=source.randint(1, 60))) for _ in range(source.randint(1, 12))]

    folder.mkdir(parents=True)
    texts = ["\n".join(document()) for _ in range(documents)]
    folder.joinpath("a.txt").write_text("\n\n".join(texts[: documents // 2]) + "\n")
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("\n\n".join(texts[documents // 2 : -10]))
    folder.joinpath("c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[-10:]))
    return folder


def write_archive(path, texts):
    with tarfile.open(path, "w:xz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
