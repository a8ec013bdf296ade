#!/usr/bin/env python3
"""Writes the model of olmoe_model.py (321 M parameters, random weights) with a tokenizer as a folder of transformers: eval_model.py TOKENIZER OUT"""
import sys

import torch
from olmoe_model import SHAPE
from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedTokenizerFast


def main(tokenizer, out):
    torch.manual_seed(0)
    end = "<|endoftext|>"
    made = PreTrainedTokenizerFast(tokenizer_file=tokenizer, eos_token=end)
    shape = {**SHAPE, "max_position_embeddings": 2048}  # five examples of mmlu fit
    OlmoeForCausalLM(OlmoeConfig(**shape, bos_token_id=None, eos_token_id=made.eos_token_id, pad_token_id=1)).save_pretrained(out)
    made.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
