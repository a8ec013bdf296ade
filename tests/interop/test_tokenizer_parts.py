"""Compares every part of a tokenizer.json with `tokenizers`: the shapes that real models have, and random ones.

Vocabularies are tiny and trained here, so that the parts do the work; the texts are as difficult as possible.
"""

import json
import random

import pytest
from test_tokenizers import ALL_CODE_POINTS, ATHANOR, TEXT, athanor, every_code_point, random_texts, refused, single_code_points
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

pytestmark = pytest.mark.skipif(not ATHANOR.exists(), reason=f"{ATHANOR} is not built; set ATHANOR_BIN")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK_CJK = r"[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

NASTY = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "  two  spaces  ",
    "\r\nline\r\n\r\nline\r",
    "\ttab\t\ttabs\t",
    "\u00a0nbsp\u00a0 \u2003em",
    "\0nul\0",
    "e\u0301\u0323 \u1100\u1161\u11a8 ﬁ ﷺ Ⅷ ㍿ ½ \u212b",
    "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪",
    "\ud7ff\ue000\ufffd\uffff\U0010ffff\U000e0001",
    "\u0378\u0530\U0001fbff unassigned",
    "ÀÉÎ ǅ İ ẞ ΑΣ ꭰ Ა",
    "1234567 ١٢٣ 一二 ²³ 3.14",
    "▁meta▁ ▁▁ <0x41> <unk> Ġ",
    "don't I'LL we'Ve ſ'ſ",
    "!?¿、。…—«»$+<=>^`|~",
    "漢字かなカナ混じりの文、全角！",
    "<s>hello</s> <s> <|x|>mid<|x|>  <pad><mask> <mask>",
    "a" * 300,
    "ab" * 200,
    "▁" * 70 + " " * 70,
]


@pytest.fixture(scope="session")
def texts():
    """Returns short and difficult texts, of many languages if the shared texts are available."""
    found = list(NASTY) + random_texts(23, 60)
    if TEXT.is_dir():
        rows = [json.loads(line) for line in (TEXT / "udhr.jsonl").read_text(encoding="utf-8").splitlines()]
        found += [row["text"][:700] for row in rows if isinstance(row.get("text"), str)][::3][:60]
        found += [s for s in json.loads((TEXT / "blns.json").read_text(encoding="utf-8")) if s][::4]
        found.append((TEXT / "wagahaiwa_nekodearu_ja.txt").read_text(encoding="utf-8")[3000:5000])
        found += [book.read_text(encoding="utf-8")[20000:23000] for book in sorted(TEXT.glob("books/*.md"))[:3]]
    return [t.encode("utf-8", errors="replace").decode() for t in found]


def corpus():
    """Returns invented words of several scripts, so that it is the same everywhere."""
    draw = random.Random(3)
    alphabets = ["etaoinshrdlu", "ETAOINS", "абвгдеё", "漢字かな", "éèàüß", "0123456789", "'.,!?-_", "नमस्ते", "😀👍"]
    words = ["".join(draw.choices(draw.choice(alphabets), k=draw.randrange(1, 7))) for _ in range(300)]
    words += ["the", "of", "and", "don't", "I'll", "12", "<s>"] * 8
    return [
        "".join(draw.choice(words) + draw.choice([" ", " ", " ", "\n", ", ", "  ", "\t"]) for _ in range(12))
        for _ in range(150)
    ]


def trained(normalizer=None, pre_tokenizer=None, train_with=None, byte_fallback=False, vocab_size=500, special=(), bytes=False, **model):
    """Trains a tokenizer with these parts; `train_with` cuts words for the training only, if the parts themselves cut none."""
    tokenizer = Tokenizer(models.BPE(**{k: v for k, v in model.items() if k not in ("fuse_unk", "ignore_merges")}))
    if normalizer:
        tokenizer.normalizer = normalizer
    if train_with or pre_tokenizer:
        tokenizer.pre_tokenizer = train_with or pre_tokenizer
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    unknown = [model["unk_token"]] if model.get("unk_token") else []
    affixes = {k: v for k, v in model.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")}
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size + len(byte_tokens),
        special_tokens=unknown + byte_tokens + list(special),
        limit_alphabet=256 if bytes else 120,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if bytes else [],
        show_progress=False,
        **affixes,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    parts = json.loads(tokenizer.to_str())
    # Tokens that the trainer made special are in the vocabulary, but are not added tokens.
    parts["added_tokens"] = [t for t in parts["added_tokens"] if t["content"] in special or t["content"] in unknown]
    parts["model"].update(byte_fallback=byte_fallback, **model)
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    elif train_with:
        parts = json.loads(tokenizer.to_str())
        parts["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(parts))
    return tokenizer


def their_decode(tokenizer, ids, skip):
    try:
        return tokenizer.decode(ids, skip_special_tokens=skip)
    except BaseException as panic:  # their Strip takes more characters than there are
        if type(panic).__name__ != "PanicException":
            raise
        return None


def assert_alike(tokenizer, texts, folder):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    tokenizer = Tokenizer.from_file(str(path))
    expected = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    ids = athanor("encode", "--jsonl", "--tokenizer", path, lines=texts)
    for text, ours, theirs in zip(texts, ids, expected, strict=True):
        name = tokenizer.id_to_token
        assert ours == theirs, (text, [name(i) for i in ours], [name(i) for i in theirs], path)
    for skip in (False, True):
        flags = ["--skip-special-tokens"] if skip else []
        decoded = athanor("decode", "--jsonl", *flags, "--tokenizer", path, lines=ids)
        for text, ours, some in zip(texts, decoded, ids, strict=True):
            theirs = their_decode(tokenizer, some, skip)
            assert theirs is None or ours == theirs, (text, path)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(add_prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def sequence(*parts):
    return pre_tokenizers.Sequence(list(parts))


def spaces_to_marks(prepend=True):
    marks = [normalizers.Prepend("▁")] if prepend else []
    return normalizers.Sequence([*marks, normalizers.Replace(" ", "▁")])


def llama2_decoder(strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2():
    tokenizer = trained(
        spaces_to_marks(),
        train_with=pre_tokenizers.Split("▁", "merged_with_next"),
        byte_fallback=True,
        unk_token="<unk>",
        fuse_unk=True,
        special=["<s>", "</s>"],
    )
    tokenizer.decoder = llama2_decoder()
    return tokenizer


def llama2_metaspace(scheme="first", do_split=False):
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=do_split)
    tokenizer = trained(
        pre_tokenizer=metaspace,
        train_with=pre_tokenizers.Metaspace(),
        byte_fallback=True,
        unk_token="<unk>",
        fuse_unk=True,
        special=["<s>"],
    )
    tokenizer.decoder = llama2_decoder()
    return tokenizer


def gemma():
    tokenizer = trained(
        normalizers.Replace(" ", "▁"),
        pre_tokenizers.Split(" ", "merged_with_previous"),
        train_with=pre_tokenizers.Split("▁", "merged_with_next"),
        byte_fallback=True,
        unk_token="<unk>",
        fuse_unk=True,
        special=["<bos>", "<mask>"],
    )
    tokenizer.decoder = llama2_decoder(strip=False)
    return tokenizer


def byte_model(pre_tokenizer, normalizer=None, special=("<|x|>",), **model):
    tokenizer = trained(normalizer, pre_tokenizer, special=special, bytes=True, **model)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def deepseek_v2():
    return byte_model(
        sequence(
            split(r"[\r\n]"),
            split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+"),
            split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            split(r"\s+$"),
            split(DEEPSEEK_CJK),
            pre_tokenizers.Digits(individual_digits=True),
            byte_level(use_regex=False),
        )
    )


def deepseek_v3():
    return byte_model(
        sequence(split(r"\p{N}{1,3}"), split(DEEPSEEK_CJK), split(DEEPSEEK_V3), byte_level(use_regex=False)),
        normalizers.Sequence([]),
    )


def clip():
    tokenizer = trained(
        normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
        sequence(split(CLIP, "removed", True), byte_level()),
        end_of_word_suffix="</w>",
        continuing_subword_prefix="",
        unk_token="<|endoftext|>",
        special=["<|startoftext|>"],
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gpt1(normalizer=None):
    tokenizer = trained(
        normalizer or normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
        end_of_word_suffix="</w>",
        unk_token="<unk>",
    )
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


def bert_like():
    tokenizer = trained(
        normalizers.BertNormalizer(lowercase=False),
        pre_tokenizers.BertPreTokenizer(),
        continuing_subword_prefix="##",
        unk_token="[UNK]",
        fuse_unk=True,
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def roberta():
    tokenizer = byte_model(byte_level(), special=("<s>", "</s>", "<pad>"), unk_token="<unk>")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def whisper():
    tokenizer = byte_model(byte_level(), special=("<|endoftext|>", "<|en|>"))
    tokenizer.add_tokens([AddedToken(f"<|{t / 50:.2f}|>", normalized=False) for t in range(40)])
    return tokenizer


def falcon():
    return byte_model(
        sequence(
            pre_tokenizers.Punctuation("contiguous"),
            byte_level(),
            pre_tokenizers.Digits(individual_digits=False),
            split(r"[0-9][0-9][0-9]", "isolated"),
        )
    )


def spoken_numbers(words):
    return sequence(pre_tokenizers.Digits(individual_digits=True), words)


IN_THE_WILD = {
    "llama2": llama2,
    "llama2-metaspace": llama2_metaspace,
    "mistral-metaspace-always": lambda: llama2_metaspace("always"),
    "llama2-metaspace-split": lambda: llama2_metaspace("first", True),
    "llama3": lambda: byte_model(sequence(split(LLAMA3), byte_level(use_regex=False)), ignore_merges=True),
    "qwen2": lambda: byte_model(sequence(split(QWEN2), byte_level(use_regex=False)), normalizers.NFC()),
    "deepseek-v2": deepseek_v2,
    "deepseek-v3": deepseek_v3,
    "gpt-neox": lambda: byte_model(byte_level(), normalizers.NFC()),
    "gpt2": lambda: byte_model(byte_level()),
    "falcon": falcon,
    "starcoder": lambda: byte_model(spoken_numbers(byte_level())),
    "bloom": lambda: byte_model(sequence(split(BLOOM), byte_level(use_regex=False)), unk_token="<unk>"),
    "gemma": gemma,
    "phi-codegen": lambda: byte_model(byte_level(), special=("<|endoftext|>", "  ", "   ", "\t\t")),
    "mistral-nemo": lambda: byte_model(sequence(split(TEKKEN), byte_level(use_regex=False)), ignore_merges=True),
    "glm4": lambda: byte_model(sequence(split(LLAMA3), byte_level(use_regex=False)), ignore_merges=True),
    "roberta": roberta,
    "opt": lambda: byte_model(byte_level(), special=("</s>", "<pad>")),
    "whisper": whisper,
    "clip": clip,
    "gpt1": gpt1,
    "xlm": lambda: gpt1(normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])),
    "bert-like": bert_like,
    "command-r": lambda: byte_model(spoken_numbers(byte_level()), normalizers.NFC()),
    "smollm": lambda: byte_model(spoken_numbers(byte_level())),
    "t5-like": lambda: trained(normalizers.NFKC(), pre_tokenizers.Metaspace(), unk_token="<unk>"),
    "words": lambda: trained(pre_tokenizer=pre_tokenizers.Whitespace(), unk_token="[UNK]"),
}


@pytest.mark.parametrize("name", IN_THE_WILD)
def test_a_tokenizer_of_a_shape_in_the_wild_gives_the_same_ids_and_texts(name, tmp_path, texts):
    assert_alike(IN_THE_WILD[name](), texts, tmp_path)


CHARACTER_BY_CHARACTER = {
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "BERT": normalizers.BertNormalizer(),
    "bare letters": normalizers.Sequence([normalizers.StripAccents(), normalizers.Nmt(), normalizers.Lowercase()]),
}


@pytest.mark.parametrize("name,points", [
    *((name, single_code_points) for name in CHARACTER_BY_CHARACTER),
    *(pytest.param(name, lambda: ALL_CODE_POINTS, marks=pytest.mark.slow, id=f"{name}-all") for name in CHARACTER_BY_CHARACTER),
])
def test_every_code_point_is_normalised_as_there(name, points, tmp_path):
    tokenizer = byte_model(byte_level(), CHARACTER_BY_CHARACTER[name])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    texts = every_code_point(points())
    ids = athanor("encode", "--jsonl", "--tokenizer", path, lines=texts)
    for text, ours, theirs in zip(texts, ids, tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True):
        assert ours == theirs.ids, hex(ord(text[0]))


def some(draw, choices, most):
    return [make(draw) for make in draw.choices(choices, k=draw.randrange(most + 1))]


NORMALIZERS = [
    lambda draw: normalizers.NFC(),
    lambda draw: normalizers.NFD(),
    lambda draw: normalizers.NFKC(),
    lambda draw: normalizers.NFKD(),
    lambda draw: normalizers.Lowercase(),
    lambda draw: normalizers.Strip(draw.random() < 0.5, draw.random() < 0.5),
    lambda draw: normalizers.StripAccents(),
    lambda draw: normalizers.Prepend(draw.choice(["▁", "x", "ab ", "é"])),
    lambda draw: normalizers.Replace(draw.choice([" ", "e", "th", "."]), draw.choice(["▁", "", "zz", "é"])),
    lambda draw: normalizers.Replace(
        Regex(draw.choice([r"\s+", r"\p{N}", r"^\s", r" {2,}", r"[aeiou]\b", "x*"])), draw.choice([" ", "", "$1", "_"])
    ),
    lambda draw: normalizers.Nmt(),
    lambda draw: normalizers.BertNormalizer(*(draw.choice([True, False]) for _ in range(4))),
    lambda draw: normalizers.ByteLevel(),
    lambda draw: normalizers.Sequence([normalizers.Lowercase(), normalizers.Sequence([normalizers.NFC()])]),
]

BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

PRE_TOKENIZERS = [
    lambda draw: pre_tokenizers.Split(
        draw.choice([" ", "e", "▁", Regex(r"\s+"), Regex(GPT2), Regex(LLAMA3), Regex(r"\d{1,3}"), Regex(r"\p{Lu}")]),
        draw.choice(BEHAVIORS),
        draw.random() < 0.3,
    ),
    lambda draw: pre_tokenizers.Digits(draw.random() < 0.5),
    lambda draw: byte_level(draw.random() < 0.4, draw.random() < 0.6),
    lambda draw: pre_tokenizers.Metaspace(
        draw.choice(["▁", "_", "e"]), draw.choice(["always", "never", "first"]), draw.random() < 0.6
    ),
    lambda draw: pre_tokenizers.Whitespace(),
    lambda draw: pre_tokenizers.WhitespaceSplit(),
    lambda draw: pre_tokenizers.Punctuation(draw.choice(BEHAVIORS)),
    lambda draw: pre_tokenizers.CharDelimiterSplit(draw.choice([" ", "e", "\n"])),
    lambda draw: pre_tokenizers.BertPreTokenizer(),
    lambda draw: pre_tokenizers.FixedLength(draw.randrange(1, 9)),
]

DECODERS = [
    lambda draw: decoders.ByteLevel(),
    lambda draw: decoders.ByteFallback(),
    lambda draw: decoders.Metaspace("▁", draw.choice(["always", "never", "first"])),
    lambda draw: decoders.Replace(draw.choice(["▁", "e", Regex(r"\s+"), Regex("^.")]), draw.choice([" ", "", "ee"])),
    lambda draw: decoders.Strip(draw.choice([" ", "e"]), draw.randrange(3), draw.randrange(2)),
    lambda draw: decoders.Fuse(),
    lambda draw: decoders.BPEDecoder(draw.choice(["</w>", "e"])),
    lambda draw: decoders.WordPiece(draw.choice(["##", "e"]), draw.random() < 0.5),
]


def random_model(draw):
    model = {}
    if draw.random() < 0.7:
        model["unk_token"] = "<unk>"
        model["fuse_unk"] = draw.random() < 0.5
    if draw.random() < 0.25:
        model["continuing_subword_prefix"] = draw.choice(["##", "@"])
    if draw.random() < 0.25:
        model["end_of_word_suffix"] = draw.choice(["</w>", "$"])
    model["byte_fallback"] = draw.random() < 0.4
    model["ignore_merges"] = draw.random() < 0.3
    return model


def random_added_token(draw):
    content = draw.choice(["<s>", "<|x|>", "the", "e", " ", "  ", "é", "E", "▁", "漢字", "Ġ", "12", "<mask>", " of", "\n"])
    flags = {name: draw.random() < 0.35 for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(content, **flags)


def random_tokenizer(draw):
    parts = some(draw, NORMALIZERS, 3)
    cuts = some(draw, PRE_TOKENIZERS, 3)
    tokenizer = trained(
        normalizers.Sequence(parts) if len(parts) != 1 else parts[0],
        sequence(*cuts) if len(cuts) != 1 else cuts[0],
        train_with=None if cuts else pre_tokenizers.WhitespaceSplit(),
        vocab_size=draw.choice([150, 400, 900]),
        **random_model(draw),
    )
    without = tokenizer.to_str()
    if not cuts:
        without = json.dumps({**json.loads(without), "pre_tokenizer": None})
    if '"Replace"' in json.dumps(json.loads(without)["normalizer"]):
        # After a Replace of several characters at the start of a text, theirs no longer treats it as the start.
        without = without.replace('"first"', '"always"')
    tokenizer = Tokenizer.from_str(without)
    for _ in range(draw.randrange(4)):
        (tokenizer.add_special_tokens if draw.random() < 0.5 else tokenizer.add_tokens)([random_added_token(draw)])
    steps = some(draw, DECODERS, 3)
    if steps:
        tokenizer.decoder = steps[0] if len(steps) == 1 else decoders.Sequence(steps)
    return tokenizer


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_random_tokenizers_give_the_same_ids_and_texts(seed, tmp_path, texts):
    for round in range(12):
        draw = random.Random(seed * 1000 + round)
        try:
            assert_alike(random_tokenizer(draw), draw.sample(texts, 40) + NASTY, tmp_path)
        except BaseException as panic:  # some combinations break the library itself
            if type(panic).__name__ != "PanicException":
                raise


def special_ids(tokenizer, texts, folder):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    ids = athanor("encode", "--jsonl", "--add-special-tokens", "--tokenizer", path, lines=texts)
    return ids, [e.ids for e in Tokenizer.from_file(str(path)).encode_batch(texts)]


POST_PROCESSORS = {
    "bos": processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)]),
    "bos-eos": processors.TemplateProcessing("<s> <s> $A </s>", "$A $B", [("<s>", 1), ("</s>", 2)]),
    "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
    "bert": processors.BertProcessing(("</s>", 2), ("<s>", 1)),
    "byte-level": processors.ByteLevel(),
    "sequence": processors.Sequence(
        [processors.ByteLevel(), processors.TemplateProcessing("<s> $A", "$A $B", [("<s>", 1)])]
    ),
}


@pytest.mark.parametrize("name", POST_PROCESSORS)
def test_special_tokens_are_added_on_demand_as_there(name, tmp_path):
    tokenizer = byte_model(byte_level(), special=("<s>", "</s>"), unk_token="<unk>")
    tokenizer.post_processor = POST_PROCESSORS[name]
    ours, theirs = special_ids(tokenizer, ["", "the", "a <s> b", " x"], tmp_path)
    assert ours == theirs


def refusal(tokenizer, path, lines=(), **changes):
    """Returns our error for a file in which `changes` were made."""
    parts = json.loads(tokenizer.to_str())
    for key, value in changes.items():
        if key == "model":
            parts["model"].update(value)
        else:
            parts[key] = value
    path.write_text(json.dumps(parts), encoding="utf-8")
    message = refused("encode", "--jsonl", "--tokenizer", path, lines=[json.dumps(line) for line in lines])
    lines = [line for line in message.splitlines() if " W " not in line]  # there may be a warning before it
    assert len(lines) == 1, message
    return lines[0]


def nested(depth, last, key="normalizers"):
    for _ in range(depth):
        last = {"type": "Sequence", key: [last]}
    return last


def test_what_is_not_known_or_makes_no_sense_is_refused_by_its_path(tmp_path):
    good, path = byte_model(byte_level()), tmp_path / "t.json"
    x = {"type": "Xyz"}
    lower = {"type": "Lowercase"}
    message = refusal(good, path, normalizer={"type": "Sequence", "normalizers": [lower, x]})
    assert 'normalizer.normalizers[1].type: the normalizer "Xyz"' in message
    assert 'normalizer.type: the normalizer "Precompiled"' in refusal(good, path, normalizer={"type": "Precompiled"})
    message = refusal(good, path, pre_tokenizer={"type": "Sequence", "pretokenizers": [x]})
    assert 'pre_tokenizer.pretokenizers[0].type: the pre-tokenizer "Xyz"' in message
    assert 'decoder.type: the decoder "CTC"' in refusal(good, path, decoder={"type": "CTC"})
    assert 'model.type: the model "Unigram"' in refusal(good, path, model={"type": "Unigram"})
    assert "model.dropout" in refusal(good, path, model={"dropout": 0.1})
    assert '"nowhere" is not in model.vocab' in refusal(good, path, model={"merges": [["a", "nowhere"]]})
    assert "nested deeper" in refusal(good, path, normalizer=nested(300, lower))
    assert "nested deeper" in refusal(good, path, pre_tokenizer=nested(300, x, "pretokenizers"))
    assert "nested deeper" in refusal(good, path, decoder=nested(300, x, "decoders"))


def test_a_text_that_a_normalizer_blows_up_is_refused_at_a_limit(tmp_path):
    good, path = byte_model(byte_level()), tmp_path / "t.json"
    grows = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1_000_000}
    assert "more than" in refusal(good, path, ["aaa" * 1000], normalizer=grows)
    doubles = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    message = refusal(good, path, ["a"], normalizer={"type": "Sequence", "normalizers": [doubles] * 60})
    assert "67108880 bytes" in message


def test_a_pattern_that_backtracks_without_end_is_refused_by_name(tmp_path):
    good, path = byte_model(byte_level()), tmp_path / "t.json"
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    message = refusal(good, path, ["a" * 5000 + "b"], pre_tokenizer=split)
    assert "(a+)+$" in message and "limit" in message
