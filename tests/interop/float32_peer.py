"""lm_eval's model on an exported folder, what its log-likelihoods are in float64, and what float32 may do to them.

A log-likelihood passes if it is within `SIGMAS` standard deviations of that in float64; the deviation is measured by disturbing every
elementary result (rounding.py). Where a document's best two candidates are closer than this bound, either may be the answer.
"""
import pytest
import torch
from rounding import SIGMAS, InDouble, Rounding

SAMPLES = 4
BATCH = 32


class Peer:
    """lm_eval's model on a folder, and the float64 form of its log-likelihoods with what float32 may do to them."""

    def __init__(self, folder):
        pytest.importorskip("accelerate")
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoModelForCausalLM

        self.lm = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=8)
        self.double = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager").eval()
        self.known = {}  # what exact() has computed

    def encode(self, context, continuation):
        if context:
            return self.lm._encode_pair(context, continuation)
        ids = self.lm.tok_encode(continuation, add_special_tokens=False)
        return [self.lm.prefix_token_id], ids[1:] if ids[:1] == [self.lm.prefix_token_id] else ids

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

    def windows(self, text):
        """(tokens that the model reads, targets) of each window of a text."""
        from lm_eval import utils

        tokens = self.lm.tok_encode(text)
        for window in utils.get_rolling_token_windows(tokens, self.lm.prefix_token_id, self.lm.max_length, 1):
            before, after = utils.make_disjoint_window(window)
            yield (before + after)[:-1], after

    def exact(self, requests):
        """Log-likelihoods of (context, continuation) in float64, and the standard deviation of a correct float32 result."""
        key = tuple(requests)
        if key not in self.known:
            self.known[key] = self.exact_of(list(self.pairs(requests)))
        return self.known[key]

    def exact_text(self, text):
        """The same of a whole text: the sum over its windows."""
        values, deviations = self.exact_of(list(self.windows(text)))
        return sum(values), sum(deviation**2 for deviation in deviations) ** 0.5

    def exact_of(self, pairs):
        pairs = sorted(enumerate(pairs), key=lambda pair: len(pair[1][0]))
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


def answers(sample):
    return [(float(log_likelihood), greedy in ("True", True)) for log_likelihood, greedy in sample["filtered_resps"]]


def requests_of(samples):
    return [tuple(arguments) if isinstance(arguments, list) else (arguments["arg_0"], arguments["arg_1"])
            for sample in samples for arguments in (sample["arguments"] if isinstance(sample["arguments"], list) else sample["arguments"].values())]


def near_candidates(values, deviations):
    """Whether the best two are within the bound of each other."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    return len(order) > 1 and values[order[0]] - values[order[1]] <= 2 * SIGMAS * max(deviations)


def compare_text(peer, text, mine, theirs):
    """Compares the log-likelihoods of a whole text."""
    value, deviation = peer.exact_text(text)
    assert abs(mine - value) <= SIGMAS * deviation and abs(theirs - value) <= SIGMAS * deviation, (mine - value, theirs - value, deviation)


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
