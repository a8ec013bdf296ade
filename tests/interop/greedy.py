"""Small models of `transformers` with a tokenizer, prompts of different lengths, and the greedy text that `transformers` gives."""
import functools
import json
import random

WORDS = "the quick brown fox jumps over the lazy dog and runs from it é 漢字".split(" ")

# Fields in addition to those of make_model. With these vocabularies tensor ranks hold different numbers of rows.
MODELS = {
    "llama": ("llama", {}),
    "olmo": ("olmo", {"tie_word_embeddings": True}),
    "olmoe": ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "qwen3": ("qwen3", {"head_dim": 12, "tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 8, "num_experts_per_tok": 2, "head_dim": 12, "moe_intermediate_size": 20,
                                "norm_topk_prob": True, "mlp_only_layers": [1]}),
}


def make_prompts(count, seed=1):
    """Returns texts of 1 to 12 words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(count)]


def make_tokenizer(with_bos=False):
    """Returns a byte-level BPE tokenizer of 301 tokens; with_bos: it puts its special token before each text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(make_prompts(50, seed=2), trainers.BpeTrainer(
        vocab_size=301, special_tokens=["<|end_of_text|>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if with_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|end_of_text|> $A", special_tokens=[("<|end_of_text|>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def usual_token(model, tokenizer):
    """Returns the token that is in about half of some greedy texts, so that texts end at different lengths if it ends them."""
    import torch

    texts = []
    for prompt in make_prompts(14):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        texts.append(set(out[0, ids.shape[1]:].tolist()))
    return min(sorted(set.union(*texts)), key=lambda token: abs(sum(token in text for text in texts) - len(texts) / 2))


def make_model(folder, name):
    """Saves a model with random weights, large enough that greedy choices have no near ties, and its tokenizer.

    The tokenizer of "olmoe" asks for a BOS, and several tokens end its texts, which generation_config.json alone tells."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer(with_bos=name == "olmoe")
    family, fields = MODELS[name]
    torch.manual_seed(5)
    config = AutoConfig.for_model(family, **dict(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
        vocab_size=len(tokenizer), max_position_embeddings=160, eos_token_id=None, pad_token_id=None, bos_token_id=None,
        initializer_range=0.2) | fields)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.config.eos_token_id = model.generation_config.eos_token_id = usual_token(model, tokenizer)
    if name == "olmoe":
        model.generation_config.eos_token_id = [model.config.eos_token_id, 260]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@functools.cache
def load(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


def greedy_theirs(folder, prompts, count, **options):
    """Returns the new ids of each prompt, without the token that ended them, and whether one did."""
    import torch

    model, tokenizer = load(folder)
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    answers = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, **options)
        new = out[0, ids.shape[1]:].tolist()
        ended = new[-1] in ends
        answers.append((new[:-1] if ended else new, ended))
    return answers


def answers_of(output):
    """Returns the same of `athanor generate --json`."""
    return [(line["new_ids"], line["ended"]) for line in map(json.loads, output.splitlines())]


GREEDY = ["--dtype", "float32", "--temperature", "0", "--json"]
