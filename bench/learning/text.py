"""The text of the comparison: books and manuals to train on, two whole books and questions from them to evaluate with."""
import json
import pathlib
import runpy
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The first is by an author of whom no other book is there; another book of the second's author is trained on.
HELD_BACK = ("Nathaniel_Hawthorne_The_Scarlet_Letter", "Lewis_Carroll_Through_the_Looking-Glass")
DOCUMENT = 20_000  # characters of a book that are one document, to the end of a paragraph
EVALUATED = 40     # documents of each book that is held back, each of this many characters:
EVALUATED_CHARACTERS = 3_000


def documents_of(book, most_characters):
    """Returns the book in pieces of whole paragraphs."""
    pieces, piece = [], ""
    for paragraph in book.split("\n\n"):
        if piece and len(piece) + len(paragraph) > most_characters:
            pieces.append(piece)
            piece = ""
        piece += ("\n\n" if piece else "") + paragraph
    return pieces + [piece]


def spread(items, number):
    """Returns `number` of the items, evenly spaced."""
    return [items[i * len(items) // number] for i in range(min(number, len(items)))]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def gather(books_folder, folder, manuals_mb):
    """Writes FOLDER/training.jsonl, and FOLDER/eval with text.jsonl and next_paragraph.jsonl."""
    books = {path.stem: path.read_text(encoding="utf-8") for path in sorted(books_folder.glob("*.md"))}
    if missing := [name for name in HELD_BACK if name not in books]:
        sys.exit(f"bench/learning: {books_folder} has no {missing[0]}.md")
    manuals = folder / "manuals.jsonl"
    if not manuals.exists():
        subprocess.run([sys.executable, ROOT / "scripts" / "quickstart_text", manuals, str(manuals_mb)], check=True)
    training = [{"text": piece, "source": name} for name, book in books.items() if name not in HELD_BACK
                for piece in documents_of(book, DOCUMENT)]
    training += [json.loads(line) for line in manuals.read_text(encoding="utf-8").splitlines()]
    write_lines(folder / "training.jsonl", training)
    evaluated = folder / "eval"
    evaluated.mkdir(exist_ok=True)
    texts = [{"text": piece, "source": name} for name in HELD_BACK for piece in spread(documents_of(books[name], EVALUATED_CHARACTERS), EVALUATED)]
    write_lines(evaluated / "text.jsonl", texts)
    make_rows = runpy.run_path(str(ROOT / "scripts" / "quickstart_rows"))["make_rows"]
    chapters = [{"text": piece} for name in HELD_BACK for piece in documents_of(books[name], DOCUMENT)]
    write_lines(evaluated / "next_paragraph.jsonl", make_rows(chapters))
    return {"training_bytes": sum(len(row["text"].encode()) for row in training), "training_documents": len(training),
            "evaluated_bytes": sum(len(row["text"].encode()) for row in texts)}
