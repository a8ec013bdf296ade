#!/usr/bin/env python3
"""The peer of bench/peers/eval: lm_eval with transformers answers the requests of one task, one pass for each turn.

It reads the same rows without a network: lm_eval's own task file, with `dataset_path: json`. The best batch size of those given is
found first, on the first documents.
"""
import argparse
import os
import pathlib
import time

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="true")

import torch  # noqa: E402

import eval_rows  # noqa: E402
import pacing  # noqa: E402


def requests_of(lm, task, limit, fewshot):
    task.set_config("num_fewshot", fewshot)
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=limit, rank=0, world_size=1)
    return task.instances


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--fewshot", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-sizes", default="1,4,16,64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    from lm_eval.models.huggingface import HFLM

    # The fastest form of its experts without a compiler (bench/peers/moe).
    lm = HFLM(pretrained=options.model, dtype="float32", device="cpu", batch_size=1, experts_implementation="grouped_mm")
    lm.model.eval()
    tasks = eval_rows.lm_eval_tasks(options.task, options.rows)
    requests = [each for task in tasks for each in requests_of(lm, task, options.limit, options.fewshot)]

    def answer(some):
        start = time.perf_counter()
        lm.loglikelihood(some, disable_tqdm=True)
        return time.perf_counter() - start

    few = requests[: max(64, len(requests) // 8)]
    seconds = {}
    for size in map(int, options.batch_sizes.split(",")):
        lm.batch_size_per_gpu = size
        seconds[size] = min(answer(few) for _ in range(2))
    lm.batch_size_per_gpu = min(seconds, key=seconds.get)
    pacing.serve(lambda: answer(requests), 0,
                 lambda: {"requests": len(requests), "batch_size": lm.batch_size_per_gpu, "batch_sizes_s": seconds,
                          "peak_rss_bytes": pacing.peak_rss_bytes(), "threads": torch.get_num_threads()})


if __name__ == "__main__":
    main()
