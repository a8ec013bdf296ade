"""The optimizers against others: torch.optim for AdamW, SGD and Muon, and the papers' formulas for LAMB and Sophia-G.

`athanor_updates` applies an optimizer to given gradients:

    athanor_updates CONFIG INPUT OUTPUT

INPUT has `param.NAME` and, for each step N from 1 to train.steps, `grad.N.NAME`; for Sophia-G also `second.N.NAME` in the steps that
estimate the Hessian, of a mean over 1,000 targets. OUTPUT has the parameters after the last step. Rates are constant, nothing is clipped.

References are in float64. With u = 2^-24, a step of float32 moves a master by at most 4 u of its size (two products, a difference, its
storage), and by the error of the step itself, which each test derives. Of matrix products, errors are drawn at their bounds.
"""
import math
import subprocess

import pytest
import torch
from conftest import find_program
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)  # the matrices are tiny: a second thread only waits

STEPS, TARGETS, U = 8, 1000, 2**-24
LR, DECAY, BETAS, EPS = 0.01, 0.1, (0.9, 0.95), 1e-8
LAYER = {"self_attn.q_proj.weight": (24, 24), "self_attn.k_proj.weight": (12, 24), "self_attn.v_proj.weight": (12, 24), "self_attn.o_proj.weight": (24, 24),
         "self_attn.q_norm.weight": (24,), "self_attn.k_norm.weight": (12,), "input_layernorm.weight": (24,), "post_attention_layernorm.weight": (24,),
         "mlp.gate.weight": (4, 24), "mlp.experts.gate_proj.weight": (4, 16, 24), "mlp.experts.up_proj.weight": (4, 16, 24), "mlp.experts.down_proj.weight": (4, 24, 16)}
SHAPES = {"model.embed_tokens.weight": (40, 24), "model.norm.weight": (24,), "lm_head.weight": (40, 24), **{f"model.layers.0.{name}": shape for name, shape in LAYER.items()}}
CONFIG = f"""
[model]
family = "olmoe"
hidden_size = 24
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 1
intermediate_size = 16
num_experts = 4
num_experts_per_tok = 2
vocab_size = 40
[train]
steps = {STEPS}
dtype = "float32"
[optimizer]
lr = {LR}
min_lr = {LR}
weight_decay = {DECAY}
"""


@pytest.fixture(scope="module")
def updates():
    return find_program("athanor_updates")


@pytest.fixture(scope="module")
def given():
    """Parameters, gradients and second gradients, of different sizes in different parameters and experts."""
    draw = torch.Generator().manual_seed(3)
    tensors = {}
    for i, (name, shape) in enumerate(SHAPES.items()):
        def normal():
            values = torch.randn(shape, generator=draw)
            return values * torch.arange(1, shape[0] + 1).view(-1, 1, 1) if len(shape) == 3 else values
        tensors[f"param.{name}"] = 0.5 * normal() * 2**(i % 4 - 2)
        for step in range(1, STEPS + 1):
            tensors[f"grad.{step}.{name}"] = normal() * 10.0**(i % 3 - 1)
            tensors[f"second.{step}.{name}"] = normal() * 0.05
    return tensors


def ours(updates, given, folder, settings):
    (folder / "run.toml").write_text(CONFIG + settings)
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, folder / "in.safetensors")
    subprocess.run([updates.path, folder / "run.toml", folder / "in.safetensors", folder / "out.safetensors"], check=True)
    return load_file(folder / "out.safetensors")


def parameters(given, dtype=torch.float64):
    return {name: given[f"param.{name}"].to(dtype).clone() for name in SHAPES}


def matrices(tensor):
    """The matrices of a parameter: its experts, or itself."""
    return list(tensor) if tensor.dim() == 3 else [tensor]


def steps_of_torch(optimizer, named, given):
    for step in range(1, STEPS + 1):
        for name, parameter in named.items():
            parameter.grad = given[f"grad.{step}.{name}"].to(parameter.dtype)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in named.items()}


def assert_within(found, expected, bound_of):
    for name, values in expected.items():
        off, bound = (found[name].double() - values.double()).abs(), bound_of(name)
        assert bool((off <= bound).all()), (name, (off / bound).max().item())
        assert bool((values.double() - given_of[name]).abs().max() > 10 * (bound.max() if torch.is_tensor(bound) else bound)), f"{name}: the bound is as large as what the steps change"


given_of = {}


@pytest.fixture(autouse=True)
def remember(given):
    given_of.update({name: given[f"param.{name}"].double() for name in SHAPES})


def largest_gradient(given, name):
    return torch.stack([given[f"grad.{step}.{name}"].double().abs() for step in range(1, STEPS + 1)]).max(0).values


def adam_step_error():
    """The error of m̂ / (√v̂ + eps): m has at most 4 u of the largest gradient g of each step so far, and √v̂ is at least
    √((1 - β2) β2^steps) g; the quotient adds 8 u of itself, at most the same ratio."""
    ratio = 1 / math.sqrt((1 - BETAS[1]) * BETAS[1]**STEPS)
    return (4 * STEPS + 8) * U * ratio


def test_adamw_is_that_of_torch(updates, given, tmp_path):
    found = ours(updates, given, tmp_path, f'name = "adamw"\nbetas = {list(BETAS)}\neps = {EPS}\n')
    named = {name: tensor.requires_grad_() for name, tensor in parameters(given).items()}
    expected = steps_of_torch(torch.optim.AdamW(named.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, foreach=False), named, given)
    assert_within(found, expected, lambda name: STEPS * (4 * U * (given_of[name].abs() + 1) + LR * adam_step_error()))


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_that_of_torch_with_decoupled_decay(updates, given, tmp_path, nesterov):
    found = ours(updates, given, tmp_path, f'name = "sgd"\nmomentum = 0.9\nnesterov = {str(nesterov).lower()}\n')
    named = {name: tensor.requires_grad_() for name, tensor in parameters(given).items()}
    optimizer = torch.optim.SGD(named.values(), lr=LR, momentum=0.9, nesterov=nesterov, foreach=False)

    class Decaying:
        @staticmethod
        def step():
            with torch.no_grad():
                for parameter in named.values():
                    parameter.mul_(1 - LR * DECAY)
            optimizer.step()

    expected = steps_of_torch(Decaying, named, given)
    # momentum is below 10 times the largest gradient, and each step adds 3 u of it, which lasts
    assert_within(found, expected, lambda name: STEPS * (4 * U * (given_of[name].abs() + LR * STEPS * 20 * largest_gradient(given, name)) + LR * 3 * STEPS * U * 20 * largest_gradient(given, name)))


def lamb_reference(given):
    """You et al. 2020, algorithm 2, for each matrix; returns the parameters and the largest ratio of each."""
    weights, largest = parameters(given), {}
    moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in weights.items()}
    for step in range(1, STEPS + 1):
        for name, weight in weights.items():
            g, (m, v) = given[f"grad.{step}.{name}"].double(), moments[name]
            m.mul_(BETAS[0]).add_((1 - BETAS[0]) * g)
            v.mul_(BETAS[1]).add_((1 - BETAS[1]) * g * g)
            direction = m / (1 - BETAS[0]**step) / ((v / (1 - BETAS[1]**step)).sqrt() + 1e-6) + DECAY * weight
            for w, u in zip(matrices(weight), matrices(direction)):
                ratio = (w.norm() / u.norm()).item() if w.norm() > 0 and u.norm() > 0 else 1
                largest[name] = max(largest.get(name, 0), ratio)
                w.sub_(LR * ratio * u)
    return weights, largest


def test_lamb_is_that_of_its_paper_with_a_ratio_for_each_expert(updates, given, tmp_path):
    found = ours(updates, given, tmp_path, f'name = "lamb"\nbetas = {list(BETAS)}\neps = 1e-6\n')
    expected, ratio = lamb_reference(given)
    # the ratio has 4 u of itself, of a direction of at most 1 / √((1 - β2) β2^steps) and the decay
    assert_within(found, expected, lambda name: STEPS * (4 * U * (given_of[name].abs() + 1) + LR * ratio[name] * 3 * adam_step_error()))
    whole = parameters(given)["model.layers.0.mlp.experts.up_proj.weight"]
    assert len({round(w.norm().item(), 3) for w in whole}) == 4  # the experts' ratios differ, so one for all would be seen


def sophia_reference(given, rho, interval):
    weights, errors = parameters(given), {}
    m, h = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    for step in range(1, STEPS + 1):
        for name, weight in weights.items():
            if (step - 1) % interval == 0:
                h[name] = BETAS[1] * h[name] + (1 - BETAS[1]) * TARGETS * given[f"second.{step}.{name}"].double()**2
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * given[f"grad.{step}.{name}"].double()
            below = rho * h[name] + 1e-15
            ratio = m[name] / below
            weight.mul_(1 - LR * DECAY).sub_(LR * ratio.clamp(-1, 1))
            # m has 4 u of the largest gradient for each step, the quotient 8 u of itself in each; a step
            # that is surely clipped has none
            error = (4 * STEPS * largest_gradient(given, name) / below + 8 * STEPS * ratio.abs()) * U
            errors[name] = errors.get(name, 0) + LR * error.clamp(max=2) * (ratio.abs() - error <= 1)
    return weights, errors


def test_sophia_is_that_of_its_authors(updates, given, tmp_path):
    rho, interval = 0.5, 3
    found = ours(updates, given, tmp_path, f'name = "sophiag"\nbetas = {list(BETAS)}\nrho = {rho}\nhessian_interval = {interval}\n')
    expected, errors = sophia_reference(given, rho, interval)
    for name, values in expected.items():
        off, bound = (found[name].double() - values).abs(), STEPS * 4 * U * (given_of[name].abs() + 1) + errors[name]
        assert bool((off <= bound).all()), (name, (off / bound).max().item())
        assert bool((bound < 1e-3 * STEPS * LR).double().mean() > 0.9), name


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MUON = [name for name, shape in SHAPES.items() if len(shape) > 1 and "embed" not in name and "lm_head" not in name and name != "model.layers.0.mlp.gate.weight"]


def newton_schulz(matrix, unit=0.0, draw=None):
    """Five iterations; each product with an error at the bound that `unit` gives: λ √n u for sums of float32, and one rounding to the type."""
    def product(a, b):
        exact = a @ b
        if unit == 0:
            return exact
        bound = 9.2 * math.sqrt(a.shape[-1]) * U * (a.abs() @ b.abs()) + unit * exact.abs()
        return exact + bound * (2 * torch.rand(exact.shape, generator=draw, dtype=exact.dtype) - 1)

    a, b, c = COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=1e-7)
    if unit:
        x = x * (1 + 2 * unit * (2 * torch.rand(x.shape, generator=draw, dtype=x.dtype) - 1))
    for _ in range(5):
        gram = product(x, x.T)
        factor = a * torch.eye(len(x), dtype=x.dtype) + b * gram + c * product(gram, gram)
        if unit:
            factor = factor * (1 + 2 * unit * (2 * torch.rand(factor.shape, generator=draw, dtype=x.dtype) - 1))
        x = product(factor, x)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def muon_reference(given, scale, unit=0.0, seed=None):
    draw = torch.Generator().manual_seed(seed) if seed is not None else None
    weights = parameters(given)
    momentum = {name: torch.zeros_like(weights[name]) for name in MUON}
    for step in range(1, STEPS + 1):
        for name in MUON:
            g, m = given[f"grad.{step}.{name}"].double(), momentum[name]
            m.lerp_(g, 1 - 0.95)
            for w, u in zip(matrices(weights[name]), matrices(g.lerp(m, 0.95))):
                rows, columns = u.shape
                factor = math.sqrt(max(1, rows / columns)) if scale == "keller_jordan" else 0.2 * math.sqrt(max(rows, columns))
                w.mul_(1 - LR * DECAY).sub_(LR * factor * newton_schulz(u, unit, draw))
    return {name: weights[name] for name in MUON}


def possible_effect(given, scale, unit):
    """The largest distance of eight runs with errors at their bounds from one without, in each parameter."""
    exact = muon_reference(given, scale)
    noisy = [muon_reference(given, scale, unit, seed) for seed in range(8)]
    return exact, {name: max((run[name] - exact[name]).abs().max().item() for run in noisy) + STEPS * 4 * U for name in MUON}


@pytest.mark.parametrize("scale", ["keller_jordan", "moonshot"])
def test_muon_in_float32_is_its_formula_for_each_expert(updates, given, tmp_path, scale):
    found = ours(updates, given, tmp_path, f'name = "muon"\nmuon_scale = "{scale}"\nnewton_schulz_dtype = "float32"\n')
    exact, bound = possible_effect(given, scale, U)
    assert_within(found, exact, lambda name: torch.tensor(bound[name]))


def test_muon_in_bfloat16_and_that_of_torch_are_within_the_rounding_of_bfloat16(updates, given, tmp_path):
    found = ours(updates, given, tmp_path, 'name = "muon"\nmuon_scale = "moonshot"\n')
    named = {(name, i): torch.nn.Parameter(w.clone()) for name in MUON for i, w in enumerate(matrices(given[f"param.{name}"]))}
    theirs = torch.optim.Muon(named.values(), lr=LR, weight_decay=DECAY, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(1, STEPS + 1):
        for (name, i), parameter in named.items():
            parameter.grad = matrices(given[f"grad.{step}.{name}"])[i]
        theirs.step()
    exact, bound = possible_effect(given, "moonshot", 2**-8)
    peer = {}
    for (name, i), parameter in named.items():
        peer.setdefault(name, []).append(parameter.detach())
    peer = {name: torch.stack(parts) if len(parts) > 1 else parts[0] for name, parts in peer.items()}
    for name in MUON:
        for result in (found, peer):  # that the peer passes shows that the bound is one of the type, and not of our order
            assert (result[name].double() - exact[name]).abs().max().item() <= bound[name], name
        assert bound[name] < (exact[name] - given_of[name]).abs().max().item(), name


def test_the_rest_of_muon_is_adamw(updates, given, tmp_path):
    muon = ours(updates, given, tmp_path, f'name = "muon"\nbetas = {list(BETAS)}\n')
    adamw = ours(updates, given, tmp_path, f'name = "adamw"\nbetas = {list(BETAS)}\n')
    same = [name for name in SHAPES if torch.equal(muon[name], adamw[name])]
    assert sorted(same) == sorted(set(SHAPES) - set(MUON))


def test_groups_have_their_optimizer_rate_and_decay(updates, given, tmp_path):
    found = ours(updates, given, tmp_path, f"""name = "adamw"
betas = {list(BETAS)}
[[optimizer.groups]]
match = ["norm", "lm_head.weight"]
lr = {LR / 4}
weight_decay = 0.0
[[optimizer.groups]]
match = ["router"]
name = "sgd"
""")
    named = {name: tensor.requires_grad_() for name, tensor in parameters(given).items()}
    slow = [name for name in SHAPES if name.endswith("layernorm.weight") or name in ("model.norm.weight", "lm_head.weight")]
    rest = [name for name in SHAPES if name not in slow and name != "model.layers.0.mlp.gate.weight"]
    optimizer = torch.optim.AdamW([{"params": [named[name] for name in rest]}, {"params": [named[name] for name in slow], "lr": LR / 4, "weight_decay": 0.0}], lr=LR, betas=BETAS,
                                  eps=EPS, weight_decay=DECAY, foreach=False)
    expected = steps_of_torch(optimizer, named, given)
    assert_within(found, {name: expected[name] for name in slow + rest}, lambda name: STEPS * (4 * U * (given_of[name].abs() + 1) + LR * adam_step_error()))
    assert not torch.equal(found["model.layers.0.mlp.gate.weight"], given["param.model.layers.0.mlp.gate.weight"])
