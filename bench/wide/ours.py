"""What Athanor's optimizers make of given gradients (tests/support/updates.cpp), and the same in float64."""
import math
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
UPDATES = ROOT / "build" / "athanor_updates"
STEPS, TARGETS, BETAS, VOCAB, RHO = 3, 1000, (0.9, 0.95), 64, 0.05
NAME = "model.layers.0.mlp.gate_proj.weight"
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def shapes(rows, columns):
    layer = {f"self_attn.{each}_proj.weight": (columns, columns) for each in "qkvo"}
    layer |= {f"mlp.{each}_proj.weight": (rows, columns) for each in ("gate", "up")} | {"mlp.down_proj.weight": (columns, rows)}
    whole = {"model.embed_tokens.weight": (VOCAB, columns), "lm_head.weight": (VOCAB, columns)}
    return whole | {f"model.layers.0.{name}": shape for name, shape in layer.items()}


def config(rows, columns, optimizer):
    return f"""
[model]
family = "olmo"
hidden_size = {columns}
num_hidden_layers = 1
num_attention_heads = 4
num_key_value_heads = 4
intermediate_size = {rows}
vocab_size = {VOCAB}
[train]
steps = {STEPS}
dtype = "float32"
[optimizer]
lr = 1.0
min_lr = 1.0
weight_decay = 0.0
{optimizer}
"""


def draw(rows, columns):
    generator = torch.Generator().manual_seed(5)
    given = {}
    for name, shape in shapes(rows, columns).items():
        given[f"param.{name}"] = 0.02 * torch.randn(shape, generator=generator)
        for step in range(1, STEPS + 1):
            given[f"grad.{step}.{name}"] = 1e-4 * torch.randn(shape, generator=generator)
            given[f"second.{step}.{name}"] = 1e-4 * torch.randn(shape, generator=generator)
    return given


def updated(given, rows, columns, optimizer, folder):
    (folder / "run.toml").write_text(config(rows, columns, optimizer))
    save_file(given, folder / "in.safetensors")
    files = [folder / name for name in ("run.toml", "in.safetensors", "out.safetensors")]
    done = subprocess.run([UPDATES, *files], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/wide/run: {done.stderr.strip()}: run `scripts/build athanor_updates`")
    return load_file(folder / "out.safetensors")[NAME]


def gradients(given):
    return [given[f"grad.{step}.{NAME}"].double() for step in range(1, STEPS + 1)]


def moment_direction(m, v, step):
    return m / (1 - BETAS[0]**step) / ((v / (1 - BETAS[1]**step)).sqrt() + 1e-8)


def adamw(given, lamb=False):
    weight = given[f"param.{NAME}"].double()
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, g in enumerate(gradients(given), 1):
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        direction = moment_direction(m, v, step)
        weight = weight - (weight.norm() / direction.norm() if lamb else 1) * direction
    return weight


def sophia(given):
    weight = given[f"param.{NAME}"].double()
    m, h = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, g in enumerate(gradients(given), 1):
        h = BETAS[1] * h + (1 - BETAS[1]) * TARGETS * given[f"second.{step}.{NAME}"].double()**2
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        weight = weight - (m / (RHO * h + 1e-15)).clamp(-1, 1)
    return weight


def orthogonal(matrix):
    a, b, c = COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def muon(given):
    weight = given[f"param.{NAME}"].double()
    m = torch.zeros_like(weight)
    for g in gradients(given):
        m = m.lerp(g, 1 - 0.95)
        weight = weight - math.sqrt(max(1, weight.shape[0] / weight.shape[1])) * orthogonal(g.lerp(m, 0.95))
    return weight


CASES = {
    "AdamW": (f'name = "adamw"\nbetas = {list(BETAS)}\neps = 1e-8', adamw),
    "LAMB": (f'name = "lamb"\nbetas = {list(BETAS)}\neps = 1e-8', lambda given: adamw(given, lamb=True)),
    "Sophia-G": (f'name = "sophiag"\nbetas = {list(BETAS)}\nrho = {RHO}\nhessian_interval = 1', sophia),
    "Muon, fp32": ('name = "muon"\nmuon_scale = "keller_jordan"\nnewton_schulz_dtype = "float32"', muon),
    "Muon, bf16": ('name = "muon"\nmuon_scale = "keller_jordan"\nnewton_schulz_dtype = "bfloat16"', muon),
}


def errors(rows_list, columns, folder):
    """Returns the header and rows of a table: of each optimizer the distance of three steps from float64, relative to these steps; of Muon
    in bf16 also the range of the singular values of its last step alone."""
    found = []
    for rows in rows_list:
        given = draw(rows, columns)
        cells = []
        for settings, reference in CASES.values():
            ours, exact = updated(given, rows, columns, settings, folder).double(), reference(given)
            cells.append(((ours - exact).norm() / (exact - given[f"param.{NAME}"].double()).norm()).item())
        found.append((rows, *cells, "{:.2f} to {:.2f}".format(*singular_range(given, rows, columns, folder))))
    return ("rows", *CASES, "singular values of Muon's step in bf16"), found


def singular_range(given, rows, columns, folder):
    one = {name: tensor if not name.startswith("param.") else torch.zeros_like(tensor) for name, tensor in given.items()}
    for name in list(one):
        if name.startswith(("grad.2.", "grad.3.")):
            one[name] = torch.zeros_like(one[name])
    # The momentum of later steps points where the first gradient did: three equal steps.
    step = updated(one, rows, columns, CASES["Muon, bf16"][0], folder).double() / STEPS / math.sqrt(max(1, rows / columns))
    values = torch.linalg.svdvals(step)
    return values.min().item(), values.max().item()
