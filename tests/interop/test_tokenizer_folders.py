"""A tokenizer is a folder: what stands in its companion files counts as it does in transformers, by the peer's default call."""
import json
import random

import pytest

WORDS = ["a", "b", " ", "<x>", "<y>", "</s>", "<s>", "<pad>", "<e>", "piece", "x>", "<"]


def base_tokenizer(template=False):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {piece: len(vocab) + i for i, piece in enumerate(["pi", "pie", "piec", "piece", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("p", "i"), ("pi", "e"), ("pie", "c"), ("piec", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def write_folder(folder, files, template=False):
    folder.mkdir()
    base_tokenizer(template).save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def compare(athanor, folder, texts):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    ours = athanor.run("tokenizer", "encode", "--tokenizer", folder, "--jsonl", "--add-special-tokens", input=lines).stdout
    assert [json.loads(line) for line in ours.splitlines()] == [theirs(text).input_ids for text in texts]
    return theirs


def make_texts(seed):
    draw = random.Random(seed)
    return ["".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(60)]


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True} | flags


NEXT = 262  # the first id behind the vocabulary and <s>
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
FOLDERS = {
    "nothing": {},
    "decoder": {"tokenizer_config.json": GENERIC | {"added_tokens_decoder": {
        str(NEXT): token("<x>"), str(NEXT + 1): token("<y>", special=False, lstrip=True)}}},
    "decoder changes flags": {"tokenizer_config.json": GENERIC | {"added_tokens_decoder": {str(NEXT - 1): token("<s>", rstrip=True)}}},
    "older files": {"tokenizer_config.json": GENERIC, "added_tokens.json": {"<y>": NEXT + 1, "<x>": NEXT},
                    "special_tokens_map.json": {"eos_token": "</s>", "pad_token": "<pad>", "additional_special_tokens": ["<e>"]}},
    "decoder and older files": {"tokenizer_config.json": GENERIC | {"added_tokens_decoder": {str(NEXT): token("<x>")}},
                                "added_tokens.json": {"<y>": NEXT}, "special_tokens_map.json": {"pad_token": "<y>"}},
    "names": {"tokenizer_config.json": GENERIC | {"eos_token": "</s>", "pad_token": {"__type": "AddedToken", **token("<pad>", lstrip=True)},
                                                  "extra_special_tokens": ["<x>", "<e>"]}},
}


@pytest.mark.parametrize("template", [False, True], ids=["plain", "template"])
@pytest.mark.parametrize("name", FOLDERS)
def test_ids_of_a_folder_are_those_of_the_default_call(athanor, tmp_path, name, template):
    compare(athanor, write_folder(tmp_path / "t", FOLDERS[name], template), make_texts(name))


@pytest.mark.parametrize("seed", range(6))
def test_ids_of_drawn_folders_are_those_of_the_default_call(athanor, tmp_path, seed):
    draw = random.Random(seed)
    flags = lambda: {key: draw.random() < 0.4 for key in ("lstrip", "rstrip", "single_word", "special")}  # noqa: E731
    settings = GENERIC | {role: draw.choice(["<s>", "</s>", "<pad>", "<x>"]) for role in ("bos_token", "eos_token", "pad_token") if draw.random() < 0.6}
    files = {"tokenizer_config.json": settings}
    new = draw.sample(["<x>", "<y>", "<e>"], draw.randint(0, 3))
    if draw.random() < 0.5:
        settings["added_tokens_decoder"] = {str(NEXT + i): token(text, **flags()) for i, text in enumerate(new)}
    else:
        files["added_tokens.json"] = {text: NEXT + i for i, text in enumerate(new)}
    compare(athanor, write_folder(tmp_path / "t", files, draw.random() < 0.5), make_texts(seed))


def test_the_older_gpt2_files_have_their_added_tokens(athanor, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    model = json.loads(base_tokenizer().to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"] | {"<|endoftext|>": len(model["vocab"])}))
    (folder / "merges.txt").write_text("".join(" ".join(pair) + "\n" for pair in model["merges"]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": len(model["vocab"]) + 1}))
    compare(athanor, folder, make_texts(1))


def test_a_sentencepiece_folder_with_further_tokens_is_refused_by_file(athanor, shared, tmp_path):
    model = shared / "data/tokenizers/test_model.model"
    (tmp_path / "tokenizer.model").write_bytes(model.read_bytes())
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<pad>": 1000}))
    failed = athanor.run("tokenizer", "encode", "--tokenizer", tmp_path, input="a\n", check=False)
    assert failed.returncode == 2
    assert 'added_tokens.json: "<pad>" has the id 1000, which' in failed.stderr
