"""`athanor eval` gives the log-likelihoods, greedy flags and scores of lm_eval with transformers, on exported models.

Both compute in float32. Each must be within float32's bound of the same log-likelihoods in float64, which is measured by disturbing every
elementary result (rounding.py). Where a document's best two candidates are closer than this bound, either may be the answer: such
documents are listed, and all others have equal scores.
"""
import gzip
import json
import math
import os
import random
import shutil

import pytest
import torch
from lm_eval_reference import Reference as Tasks
from rounding import SIGMAS, InDouble, Rounding
from runs import Run, make_data
from test_eval_tasks import MADE_UP, made_up

torch.set_num_threads(1)
SAMPLES = 4
BATCH = 32
REAL = {  # task: shots, documents
    "dense": {"arc_easy": (0, 10), "hellaswag": (0, 6), "winogrande": (2, 6), "boolq": (0, 4), "sciq": (1, 5)},
    "sparse": {"arc_easy": (1, 4), "hellaswag": (0, 3), "winogrande": (0, 4)},
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


# ---- lm_eval with transformers ------------------------------------------------------------------------------------------


class Peer:
    """lm_eval's model on a folder, and the float64 form of its log-likelihoods with what float32 may do to them."""

    def __init__(self, folder):
        pytest.importorskip("accelerate")
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoModelForCausalLM

        self.lm = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=8)
        self.double = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager").eval()

    def encode(self, context, continuation):
        if context:
            return self.lm._encode_pair(context, continuation)
        ids = self.lm.tok_encode(continuation, add_special_tokens=False)
        return [self.lm.prefix_token_id], ids

    def pairs(self, requests):
        """(tokens that the model reads, targets) of each request."""
        for context, continuation in requests:
            before, after = self.encode(context, continuation)
            whole = (before + after)[-(self.lm.max_length + 1):]
            yield whole[:-1], after

    @torch.no_grad()
    def batch(self, some):
        longest = max(len(read) for read, _ in some)
        ids = torch.zeros(len(some), longest, dtype=torch.long)
        for row, (read, _) in zip(ids, some):
            row[: len(read)] = torch.tensor(read)
        hidden = self.double.model(input_ids=ids, use_cache=False).last_hidden_state
        scored = [hidden[i, len(read) - len(after): len(read)] for i, (read, after) in enumerate(some)]
        log_p = torch.log_softmax(self.double.lm_head(torch.cat(scored)), -1)
        targets = torch.tensor([target for _, after in some for target in after])
        each = log_p.gather(-1, targets[:, None])[:, 0]
        return [part.sum() for part in each.split([len(after) for _, after in some])]

    def exact(self, requests):
        """Log-likelihoods in float64, and the standard deviation of a correct float32 result."""
        pairs = sorted(enumerate(self.pairs(requests)), key=lambda pair: len(pair[1][0]))
        values, deviations = [0.0] * len(pairs), [0.0] * len(pairs)
        for begin in range(0, len(pairs), BATCH):
            indices, some = zip(*pairs[begin: begin + BATCH])
            with InDouble():
                value = torch.stack(self.batch(some))
                errors = []
                for seed in range(1, SAMPLES + 1):
                    with Rounding(seed):
                        errors.append(torch.stack(self.batch(some)) - value)
            # The typical error of the batch: of one request alone, six draws tell too little.
            size = torch.stack(errors).pow(2).mean(0).sqrt()
            for at, v, d in zip(indices, value.tolist(), torch.maximum(size, size.mean()).tolist()):
                values[at], deviations[at] = v, max(d, 2.0**-24 * abs(v))
        return values, deviations


# ---- The comparison -----------------------------------------------------------------------------------------------------


def ours(athanor, model, out, data, tasks, limit, *options):
    athanor.run("eval", model, "--tasks", ",".join(tasks), "--data", data, "--limit", limit, "--out", out, "--samples", *options)
    samples = {}
    for file in sorted(out.with_suffix(".samples").iterdir()):
        samples[file.stem.removeprefix("samples_")] = [json.loads(line) for line in file.read_text().splitlines()]
    return json.loads(out.read_text()), samples


def answers(sample):
    return [(float(log_likelihood), greedy in ("True", True)) for log_likelihood, greedy in sample["filtered_resps"]]


def requests_of(samples):
    return [tuple(arguments) if isinstance(arguments, list) else (arguments["arg_0"], arguments["arg_1"])
            for sample in samples for arguments in (sample["arguments"] if isinstance(sample["arguments"], list) else sample["arguments"].values())]


def near_candidates(values, deviations):
    """Whether the best two are within the bound of each other."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    return len(order) > 1 and values[order[0]] - values[order[1]] <= 2 * SIGMAS * max(deviations)


def compare(peer, mine, theirs):
    """Compares two lists of samples of one task; returns the documents that float32 does not decide."""
    undecided = []
    values, deviations = peer.exact(requests_of(mine))
    at = 0
    for left, right in zip(mine, theirs, strict=True):
        assert left["arguments"] == right["arguments"]
        count = len(answers(left))
        value, deviation = values[at: at + count], deviations[at: at + count]
        at += count
        for (a, greedy), (b, other_greedy), v, d in zip(answers(left), answers(right), value, deviation, strict=True):
            assert abs(a - v) <= SIGMAS * d and abs(b - v) <= SIGMAS * d, (left["doc_id"], a - v, b - v, d)
            if greedy != other_greedy:
                undecided.append((left["doc_id"], "greedy"))
        lengths = [len(each) for _, each in requests_of([left])]
        near = near_candidates(value, deviation) or near_candidates([v / n for v, n in zip(value, lengths)], deviation)
        metrics = [key for key in left["metrics"] if key in ("acc", "acc_norm")]
        if near and [left[m] for m in metrics] != [right[m] for m in metrics]:
            undecided.append((left["doc_id"], "candidates"))
            continue
        assert [left[m] for m in metrics] == [right[m] for m in metrics], left["doc_id"]
    return undecided


def plain(samples):
    return json.loads(json.dumps(samples, default=lambda o: o.tolist() if hasattr(o, "tolist") else str(o)))


def theirs_of(tasks, peer, made, fewshot, limit):
    tasks.model = peer.lm
    return plain(tasks.evaluate(made, fewshot=fewshot, limit=limit)["samples"])


@pytest.fixture(scope="module")
def tasks():
    return Tasks()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_real_rows_give_the_log_likelihoods_and_scores_of_lm_eval(request, athanor, shared, tasks, tmp_path, kind, capsys):
    run, folder = request.getfixturevalue(kind)
    peer = Peer(folder)
    for name, (fewshot, limit) in REAL[kind].items():
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
        theirs = theirs_of(tasks, peer, {name: tasks.task(config, {split: rows})}, fewshot, limit)
        results, mine = ours(athanor, run if name == "arc_easy" else folder, tmp_path / f"{name}.json", shared / "data" / "eval", [name], limit,
                             "--fewshot", fewshot)
        undecided = compare(peer, mine[name], theirs[name])
        with capsys.disabled():
            if undecided:
                print(f"\n{kind}, {name}: float32 does not decide {undecided}")
        assert len(undecided) <= limit // 4
        scored = [sample["acc"] for sample in mine[name]]
        assert math.isclose(results["results"][name]["acc,none"], sum(scored) / len(scored))


def test_made_up_rows_of_every_kind_of_request_give_those_of_lm_eval(athanor, dense, tasks, tmp_path):
    _, folder = dense
    peer = Peer(folder)
    draw = random.Random(3)
    splits = {split: made_up(draw, 30) for split in ("train", "validation", "test")}
    for split, rows in splits.items():
        (tmp_path / f"rows_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("logiqa", "inputs", "cloze", "described", "mutual", "rolling"):
        keys = {key: value for key, value in MADE_UP[name].items()}
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps({"task": name, **keys, "athanor": {"data": "rows"}}))
        theirs = theirs_of(tasks, peer, {name: tasks.task({"task": name, **keys}, splits)}, None, 8)
        _, mine = ours(athanor, folder, tmp_path / f"{name}.json", tmp_path, [str(file)], 8)
        if name == "rolling":
            for left, right in zip(mine[name], theirs[name], strict=True):
                for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
                    assert left[metric][1] == right[metric][1]
                    assert math.isclose(left[metric][0], right[metric][0], rel_tol=2e-6)
        else:
            compare(peer, mine[name], theirs[name])


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


def test_a_tokenizer_that_begins_texts_with_a_token_does_so_where_lm_eval_does(athanor, dense, tasks, tmp_path):
    folder = with_bos(dense[1], tmp_path / "model")
    peer = Peer(folder)
    draw = random.Random(5)
    splits = {split: made_up(draw, 12) for split in ("train", "validation", "test")}
    for row in splits["test"][:3]:
        row["text"] = "<|endoftext|>" + row["text"]  # begins with it already
    for split, rows in splits.items():
        (tmp_path / f"rows_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("cloze", "mutual", "rolling"):
        keys = dict(MADE_UP[name])
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps({"task": name, **keys, "athanor": {"data": "rows"}}))
        theirs = theirs_of(tasks, peer, {name: tasks.task({"task": name, **keys}, splits)}, None, 6)
        _, mine = ours(athanor, folder, tmp_path / f"{name}.json", tmp_path, [str(file)], 6)
        for left, right in zip(mine[name], theirs[name], strict=True):
            if name == "rolling":
                assert math.isclose(left["bits_per_byte"][0], right["bits_per_byte"][0], rel_tol=2e-6)
                continue
            for (a, greedy), (b, other) in zip(answers(left), answers(right), strict=True):
                assert math.isclose(a, b, rel_tol=2e-6, abs_tol=2e-6) and greedy == other
