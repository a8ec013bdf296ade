"""M6, which `transformers` does not have, is compared with a plain model in torch: logits, losses and every gradient, in float32."""
import math

import pytest
import torch
from rounding import Reference
from runs import make_data
from safetensors.torch import load_file, save_file

EOS = 0
LAYERS, WIDTH, HEADS, FFN, EXPERTS, CHOICES, VOCAB, POSITIONS, AUX = 2, 48, 3, 20, 6, 2, 90, 64, 0.05
CONFIG = f"""[model]
family = "m6"
hidden_size = {WIDTH}
num_hidden_layers = {LAYERS}
num_attention_heads = {HEADS}
intermediate_size = {FFN}
num_experts = {EXPERTS}
num_experts_per_tok = {CHOICES}
vocab_size = {VOCAB}
max_position_embeddings = {POSITIONS}
[moe]
router_aux_loss_coef = {AUX}
[checkpoint]
model_interval = 0
"""


def make_parameters(seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return 0.2 * torch.randn(*shape, generator=generator)

    parameters = {"transformer.wte.weight": normal(VOCAB, WIDTH), "transformer.wpe.weight": normal(POSITIONS, WIDTH),
                  "lm_head.weight": normal(VOCAB, WIDTH)}

    def add_norm(name):
        parameters[f"{name}.weight"], parameters[f"{name}.bias"] = 1 + normal(WIDTH), normal(WIDTH)

    for layer in (f"transformer.h.{i}" for i in range(LAYERS)):
        for norm in ("ln_1", "ln_2"):
            add_norm(f"{layer}.{norm}")
        for part in ("q_proj", "k_proj", "v_proj", "c_proj"):
            parameters[f"{layer}.attn.{part}.weight"], parameters[f"{layer}.attn.{part}.bias"] = normal(WIDTH, WIDTH), normal(WIDTH)
        parameters[f"{layer}.mlp.gate.weight"] = normal(EXPERTS, WIDTH)
        parameters[f"{layer}.mlp.experts.c_fc.weight"] = normal(EXPERTS, FFN, WIDTH)
        parameters[f"{layer}.mlp.experts.c_proj.weight"] = normal(EXPERTS, WIDTH, FFN)
    add_norm("transformer.ln_f")
    return parameters


def attention(p, name, x, hidden):
    batch, length, width = x.shape

    def project(part):
        return torch.nn.functional.linear(x, p[f"{name}.{part}.weight"], p[f"{name}.{part}.bias"]).view(batch, length, HEADS, -1).transpose(1, 2)

    scores = project("q_proj") @ project("k_proj").transpose(2, 3) / math.sqrt(width // HEADS)
    weights = scores.masked_fill(hidden[:, None], -1e30).softmax(-1)
    attended = (weights @ project("v_proj")).transpose(1, 2).reshape(batch, length, width)
    return torch.nn.functional.linear(attended, p[f"{name}.c_proj.weight"], p[f"{name}.c_proj.bias"])


def experts(p, name, x, margins):
    """Returns the result, the probabilities and the choices of each token."""
    tokens = x.flatten(0, 1)
    probabilities = torch.nn.functional.linear(tokens, p[f"{name}.gate.weight"]).softmax(-1)
    best = probabilities.detach().topk(CHOICES + 1).values
    margins.append(float((best[:, -2] - best[:, -1]).min()))
    weights, chosen = probabilities.topk(CHOICES)
    out = torch.zeros_like(tokens)
    for e in range(EXPERTS):
        inner = torch.nn.functional.gelu(tokens @ p[f"{name}.experts.c_fc.weight"][e].T, approximate="tanh")
        share = (weights * (chosen == e)).sum(-1, keepdim=True)
        out = out + share * (inner @ p[f"{name}.experts.c_proj.weight"][e].T)
    return out.view(x.shape), probabilities, chosen


def losses_and_gradients(parameters, tokens, documents, margins):
    p = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}

    def norm(name, x):
        return torch.nn.functional.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"], eps=1e-5)

    ends = (tokens == EOS).long() if documents else torch.zeros_like(tokens)
    document, index = ends.cumsum(1) - ends, torch.arange(tokens.shape[1]).expand_as(tokens)
    begins = torch.nn.functional.pad(ends[:, :-1].bool(), (1, 0), value=True)
    positions = index - torch.where(begins, index, 0).cummax(1).values
    hidden = (document[:, :, None] != document[:, None, :]) | (index[:, None, :] > index[:, :, None])
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][positions]
    routed = []
    for layer in (f"transformer.h.{i}" for i in range(LAYERS)):
        x = x + attention(p, f"{layer}.attn", norm(f"{layer}.ln_1", x), hidden)
        fed, *of_layer = experts(p, f"{layer}.mlp", norm(f"{layer}.ln_2", x), margins)
        routed.append(of_layer)
        x = x + fed
    logits = norm("transformer.ln_f", x) @ p["lm_head.weight"].T
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
    probabilities, chosen = (torch.cat(parts) for parts in zip(*routed))
    share = torch.nn.functional.one_hot(chosen, EXPERTS).to(logits.dtype).mean(0).sum(0)
    aux_loss = EXPERTS * (share * probabilities.mean(0)).sum()
    (loss + AUX * aux_loss).backward()
    out = {"logits": logits.detach(), "loss": loss.detach(), "aux_loss": aux_loss.detach()}
    return out | {f"grad.{name}": tensor.grad for name, tensor in p.items()}


@pytest.mark.parametrize("documents", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_logits_losses_and_every_gradient_are_those_of_a_plain_model(documents, athanor_parity, tmp_path):
    for seed in range(1, 100):  # the first whose choices no rounding turns
        parameters, margins = make_parameters(seed), []
        tokens = torch.randint(1, VOCAB, (3, 31), generator=torch.Generator().manual_seed(seed))
        tokens[0, [4, 5, 20]] = EOS
        double = {name: tensor.double() for name, tensor in parameters.items()}
        losses_and_gradients(double, tokens, documents, margins)
        if min(margins) > 1e-4:
            break
    reference = Reference(lambda: losses_and_gradients(double, tokens, documents, []))
    theirs = losses_and_gradients(parameters, tokens, documents, [])
    assert not (lines := reference.failures(theirs)), "the bound is too tight for torch itself:\n" + "\n".join(lines)
    (tmp_path / "m6.toml").write_text(CONFIG)
    save_file({"tokens": tokens} | {f"param.{name}": tensor for name, tensor in parameters.items()}, tmp_path / "input.safetensors")
    options = ["--document-attention", EOS] if documents else []
    athanor_parity.run(tmp_path / "m6.toml", tmp_path / "input.safetensors", tmp_path / "output.safetensors", *options)
    ours = load_file(tmp_path / "output.safetensors")
    assert not (lines := reference.failures(ours)), "\n".join(lines)
    assert set(ours) == set(reference.values)


def test_a_run_of_m6_trains_and_its_export_is_refused_by_name(athanor, tmp_path):
    data = make_data(athanor, tmp_path)
    settings = ["train.steps=3", "train.global_batch_size=4", "data.seq_len=32", f"data.path={data}", "model.vocab_size=320",
                f"train.run_dir={tmp_path / 'run'}", "checkpoint.interval=3", "train.validation_interval=0", "optimizer.warmup_steps=1"]
    (tmp_path / "m6.toml").write_text(CONFIG)
    athanor.run("train", tmp_path / "m6.toml", *[part for setting in settings for part in ("--set", setting)])
    done = athanor.run("export", tmp_path / "run", "--out", tmp_path / "hf", check=False)
    assert done.returncode == 2 and "transformers has no class for family m6" in done.stderr and not (tmp_path / "hf").exists()
    done = athanor.run("config", tmp_path / "m6.toml", "--set", "checkpoint.model_interval=5", check=False)
    assert done.returncode == 2 and "model.family (m6): transformers has no class for it" in done.stderr
