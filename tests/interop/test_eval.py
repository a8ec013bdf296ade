"""`athanor eval` gives the log-likelihoods, greedy flags and scores of lm_eval with transformers, on exported models.

Both compute in float32. Each must be within float32's bound of the same log-likelihoods in float64 (float32_peer.py). Documents whose best
two candidates are closer than this bound are listed, and all others have equal scores.
"""
import functools
import gzip
import io
import json
import math
import os
import random
import shutil

import pytest
import sentencepiece
import torch
from float32_peer import Peer, compare, compare_text, requests_of
from greedy import make_model
from lm_eval_reference import Reference as Tasks
from runs import Run, make_data
from test_eval_tasks import MADE_UP, made_up

torch.set_num_threads(1)
ARC = ["arc_easy"]
# (tasks that are evaluated at once, shots, documents). Most of the time goes into the targets of what is computed in 64 bits, and with the
# tokenizer of OLMoE each target has 50,304 logits.
FEW = {
    "dense": [(["arc_easy", "hellaswag", "boolq"], 0, 2), (["winogrande", "sciq"], 2, 2)],
    "sparse": [(ARC, 1, 2), (["winogrande"], 0, 2)],
}
MANY = {
    "dense": [(ARC, 0, 10), (["hellaswag"], 0, 6), (["winogrande"], 2, 6), (["boolq"], 0, 4), (["sciq"], 1, 5)],
    "sparse": [(ARC, 1, 4), (["hellaswag"], 0, 3), (["winogrande"], 0, 4)],
}


# ---- Models -------------------------------------------------------------------------------------------------------------


def train_and_export(athanor, folder, data, family, *overrides):
    run = Run(athanor, folder, data, family)
    # Far from uniform logits, so that few candidates are near one another.
    run.train("model.initializer_range=0.15", *overrides)
    athanor.run("export", run.folder, "--out", folder / "model", "--dtype", "float32")
    return run.folder, folder / "model"


@pytest.fixture(scope="module")
def dense(athanor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    return train_and_export(athanor, folder, make_data(athanor, folder), "llama", "model.max_position_embeddings=288")


@pytest.fixture(scope="module")
def sparse(athanor, shared, tmp_path_factory):
    """A sparse model with the tokenizer of OLMoE."""
    folder = tmp_path_factory.mktemp("sparse")
    documents = folder / "docs.jsonl"
    documents.write_text("".join(json.dumps({"text": f"The {i} questions of science and their answers. " * 9}) + "\n" for i in range(40)))
    athanor.run("prepare", "--tokenizer", shared / "data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json", "--seq-len", 32, "--seed", 1,
                "--validation-fraction", 0.1, "--out", folder / "data", documents)
    return train_and_export(athanor, folder, folder / "data", "olmoe", "model.max_position_embeddings=96", "model.vocab_size=50304")


# ---- The comparison -----------------------------------------------------------------------------------------------------


def ours(athanor, model, out, data, tasks, limit, *options):
    athanor.run("eval", model, "--tasks", ",".join(tasks), "--data", data, "--limit", limit, "--out", out, "--samples", *options)
    samples = {}
    for file in sorted(out.with_suffix(".samples").iterdir()):
        samples[file.stem.removeprefix("samples_")] = [json.loads(line) for line in file.read_text().splitlines()]
    return json.loads(out.read_text()), samples


def plain(samples):
    return json.loads(json.dumps(samples, default=lambda o: o.tolist() if hasattr(o, "tolist") else str(o)))


def theirs_of(tasks, peer, made, fewshot, limit):
    tasks.model = peer.lm
    return plain(tasks.evaluate(made, fewshot=fewshot, limit=limit)["samples"])


@pytest.fixture(scope="module")
def tasks():
    pytest.importorskip("accelerate")
    made = Tasks()
    # These take seconds, once for all tests.
    import lm_eval.models.huggingface  # noqa: F401
    import sklearn.metrics  # noqa: F401
    return made


peer_of = functools.cache(Peer)


def task_of_lm_eval(tasks, shared, name):
    """lm_eval's own task with the rows that we have."""
    with gzip.open(shared / "data" / "eval" / f"{name}.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    if name == "boolq":
        rows = [{**row, "label": int(row["answer"])} for row in rows]
    file = {"arc_easy": "arc/arc_easy.yaml", "boolq": "super_glue/boolq/default.yaml", "winogrande": "winogrande/default.yaml"}
    config = tasks.load_yaml(os.path.join(tasks.folder, file.get(name, f"{name}/{name}.yaml")), resolve_func=True)
    split = "validation" if name in ("hellaswag", "winogrande", "boolq") else "test"
    config.update(training_split=None, validation_split=split if split == "validation" else None)
    if split == "test":
        config["fewshot_split"] = "test"
    return tasks.task(config, {split: rows})


@pytest.mark.parametrize("kind, real", [
    *(pytest.param(kind, FEW[kind], id=kind) for kind in FEW),
    *(pytest.param(kind, MANY[kind], id=f"{kind}, more documents", marks=pytest.mark.slow) for kind in MANY)])
def test_real_rows_give_the_log_likelihoods_and_scores_of_lm_eval(request, athanor, shared, tasks, tmp_path, kind, real, capsys):
    run, folder = request.getfixturevalue(kind)
    peer = peer_of(folder)
    for names, fewshot, limit in real:
        theirs = theirs_of(tasks, peer, {name: task_of_lm_eval(tasks, shared, name) for name in names}, fewshot, limit)
        results, mine = ours(athanor, run if "arc_easy" in names else folder, tmp_path / f"{names[0]}.json", shared / "data" / "eval", names,
                             limit, "--fewshot", fewshot)
        assert mine.keys() == theirs.keys() == set(names)
        for name in names:
            undecided = compare(peer, mine[name], theirs[name])
            with capsys.disabled():
                if undecided:
                    print(f"\n{kind}, {name}: float32 does not decide {undecided}")
            assert len(undecided) <= limit // 4
            scored = [sample["acc"] for sample in mine[name]]
            assert math.isclose(results["results"][name]["acc,none"], sum(scored) / len(scored))


def compare_texts(peer, mine, theirs):
    for left, right in zip(mine, theirs, strict=True):
        for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
            assert left[metric][1] == right[metric][1]
            compare_text(peer, requests_of([left])[0][0], left[metric][0], right[metric][0])


def compare_made_up(athanor, tasks, folder, splits, names, tmp_path, limit):
    """Evaluates made-up tasks at once, and compares each."""
    peer = peer_of(folder)
    for split, rows in splits.items():
        (tmp_path / f"rows_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [tmp_path / f"{name}.yaml" for name in names]
    for name, file in zip(names, files):
        file.write_text(json.dumps({"task": name, **MADE_UP[name], "athanor": {"data": "rows"}}))
    theirs = theirs_of(tasks, peer, {name: tasks.task({"task": name, **MADE_UP[name]}, splits) for name in names}, None, limit)
    _, mine = ours(athanor, folder, tmp_path / "made_up.json", tmp_path, list(map(str, files)), limit)
    assert mine.keys() == theirs.keys() == set(names)
    for name in names:
        if name == "rolling":
            compare_texts(peer, mine[name], theirs[name])
        else:
            compare(peer, mine[name], theirs[name])


LIMITS = [2, pytest.param(8, marks=pytest.mark.slow)]


@pytest.mark.parametrize("limit", LIMITS)
def test_made_up_rows_of_every_kind_of_request_give_those_of_lm_eval(athanor, dense, tasks, tmp_path, limit):
    draw = random.Random(3)
    splits = {split: made_up(draw, 30) for split in ("train", "validation", "test")}
    compare_made_up(athanor, tasks, dense[1], splits, ["logiqa", "inputs", "cloze", "described", "mutual", "rolling"], tmp_path, limit)


def with_bos(folder, out):
    """The same model with a tokenizer that begins each text with a token, as Llama's does."""
    shutil.copytree(folder, out)
    file, settings = out / "tokenizer.json", out / "tokenizer_config.json"
    tokenizer, config = json.loads(file.read_text()), json.loads(settings.read_text())
    bos = config["eos_token"]
    at = next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == bos)
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [at], "tokens": [bos]}}}
    file.write_text(json.dumps(tokenizer))
    settings.write_text(json.dumps({**config, "bos_token": bos}))
    return out


@pytest.mark.parametrize("limit", LIMITS)
def test_a_tokenizer_that_begins_texts_with_a_token_does_so_where_lm_eval_does(athanor, dense, tasks, tmp_path, limit):
    folder = with_bos(dense[1], tmp_path / "model")
    draw = random.Random(5)
    splits = {split: made_up(draw, 12) for split in ("train", "validation", "test")}
    for row in splits["test"][1:4]:
        row["text"] = "<|endoftext|>" + row["text"]  # begins with it already
    compare_made_up(athanor, tasks, folder, splits, ["cloze", "mutual", "rolling"], tmp_path, limit)


def with_sentencepiece(folder, texts):
    """A Llama with a SentencePiece model of BPE, as the first Llamas have: bytes in place of unknown characters, a first token."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=500, byte_fallback=True, hard_vocab_limit=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1)
    torch.manual_seed(5)
    config = AutoConfig.for_model("llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
                                  vocab_size=500, max_position_embeddings=288, bos_token_id=1, eos_token_id=2, initializer_range=0.2)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "legacy": False}))
    return folder


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", ["qwen3_moe", "sentencepiece"])
def test_models_of_transformers_give_those_of_lm_eval(athanor, tasks, tmp_path, kind, limit):
    draw = random.Random(4)
    splits = {split: made_up(draw, 20) for split in ("train", "validation", "test")}
    texts = [value for row in splits["train"] * 5 for value in row.values() if isinstance(value, str)]
    if kind == "sentencepiece":
        folder = with_sentencepiece(tmp_path / "hf", texts)
    else:
        folder = make_model(tmp_path / "hf", kind)
        settings = folder / "tokenizer_config.json"  # lm_eval needs a token for an empty context
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": "<|end_of_text|>"}))
    # `transformers` reads a continuation without context that begins with a space in another way than SentencePiece.
    names = ["described", "inputs"] if kind == "sentencepiece" else ["mutual"] if limit == 2 else ["described", "mutual"]
    compare_made_up(athanor, tasks, folder, splits, names, tmp_path, limit)
