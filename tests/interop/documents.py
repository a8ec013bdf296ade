"""Makes documents, the same for the same seed: as many gigabytes as a test needs, in seconds."""
import json
import random

SYLLABLES = "ba de ki lo mu na pe ri so tu ver wo xa yi zu chen stra plo gri the and ing tion er al".split()


def some_paragraphs(count, seed):
    """Returns sentences of invented words, some rare, some in every line, with numbers, newlines and letters beyond ASCII."""
    source = random.Random(seed)
    words = ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(20_000)]
    words += ["naïve", "Straße", "東京", "λόγος", "don't", "3.14159", "e=mc²"] * 20
    common = words[:50]
    paragraphs = []
    for _ in range(count):
        length = source.randint(5, 400)
        text = " ".join(source.choice(common) if source.random() < 0.4 else source.choice(words) for _ in range(length))
        paragraphs.append(text.capitalize() + source.choice([".", "?\n", "!\n\n", f" {source.randint(0, 10**6)}."]))
    return paragraphs


def write_documents(folder, num_bytes, num_files=8, seed=1):
    """Writes .jsonl files of `num_bytes` of text together; returns the numbers of documents and of bytes of their texts.

    Paragraphs come from a pool and are numbered, so that no two documents are equal.
    """
    source = random.Random(seed)
    pool = [(json.dumps(text, ensure_ascii=False)[1:-1].encode(), len(text.encode())) for text in some_paragraphs(4000, seed)]
    folder.mkdir(parents=True, exist_ok=True)
    documents = text_bytes = 0
    for index in range(num_files):
        written, end = 0, num_bytes // num_files
        with open(folder / f"{index:03}.jsonl", "wb", buffering=1 << 20) as file:
            while written < end:
                number = b"%d " % documents
                pieces = source.choices(pool, k=source.choice((1, 1, 2, 3, 10)))
                file.write(b'{"id": %d, "text": "%s%s"}\n' % (documents, number, b" ".join(row for row, _ in pieces)))
                length = len(number) + sum(size for _, size in pieces) + len(pieces) - 1
                written += length
                text_bytes += length
                documents += 1
    return documents, text_bytes
