"""The Python module, built in the build folder: its sparse block is that of `transformers`, its tokenizer that of `tokenizers`."""
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
import torch
from conftest import ROOT
from rounding import InDouble, Reference
from runs import make_data
from tokenizers import Tokenizer
from transformers import OlmoeConfig, OlmoeForCausalLM
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock

pytestmark = pytest.mark.slow  # it compiles for a minute
CONFIG = OlmoeConfig(hidden_size=48, intermediate_size=20, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, vocab_size=90,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)
CONFIG._experts_implementation = "eager"


@pytest.fixture(scope="module")
def module(athanor, tmp_path_factory):
    build, folder = athanor.path.parent, tmp_path_factory.mktemp("python")
    subprocess.run(["cmake", "-B", build, f"-DATHANOR_PYTHON_INCLUDE={sysconfig.get_paths()['include']}",
                    f"-DATHANOR_TORCH_VERSION={torch.__version__}"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build, "--target", "athanor_python"], check=True, capture_output=True)
    shutil.copytree(ROOT / "python" / "athanor", folder / "athanor")
    shutil.copy(build / "_athanor.so", folder / "athanor")
    for library in build.glob("libathanor*.so*"):
        shutil.copy(library, folder / "athanor", follow_symlinks=False)
    sys.path.insert(0, str(folder))
    import athanor as found
    yield found
    sys.path.remove(str(folder))


def results(block, x, dy):
    block.zero_grad()
    x = x.clone().requires_grad_()
    y = block(x)
    y.backward(dy.to(y.dtype))
    return {"y": y.detach(), "dx": x.grad} | {name: parameter.grad.clone() for name, parameter in block.named_parameters()}


def make_block(seed):
    torch.manual_seed(seed)
    block = OlmoeSparseMoeBlock(CONFIG)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0, 0.3)
    return block


def test_the_sparse_block_is_that_of_transformers_and_loads_its_parameters(module):
    theirs = make_block(1)
    x, dy = torch.randn(3, 17, 48), torch.randn(3, 17, 48)
    double = make_block(1).double()
    with InDouble():
        reference = Reference(lambda: results(double, x.double(), dy.double()))
    assert not reference.failures(results(theirs, x, dy)), "the bound is too tight for transformers itself"
    ours = module.SparseBlock(CONFIG)
    ours.load_state_dict(theirs.state_dict())
    found = results(ours, x, dy)
    assert not (lines := reference.failures(found)), "\n".join(lines)
    with torch.no_grad():
        assert torch.equal(ours(x), found["y"])


def test_a_model_of_transformers_trains_with_it_as_without(module):
    torch.manual_seed(2)
    theirs = OlmoeForCausalLM(CONFIG)
    ours = OlmoeForCausalLM(CONFIG)
    ours.load_state_dict(theirs.state_dict())
    assert module.replace_sparse_blocks(ours) == 2
    assert list(ours.state_dict()) == list(theirs.state_dict())
    tokens, losses = torch.randint(0, 90, (2, 33)), []
    for model in (theirs, ours):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_wrong_shapes_and_types_are_named(module):
    block = module.Experts(4, 8, 6)
    x, ids = torch.randn(5, 8), torch.zeros(5, 1, dtype=torch.long)
    with pytest.raises(RuntimeError, match="do not fit together"):
        block(torch.randn(5, 9), ids, torch.ones(5, 1))
    with pytest.raises(RuntimeError, match="expected fp32 or bf16"):
        block(x.half(), ids, torch.ones(5, 1))


def test_gradients_of_gradients_are_refused(module):
    x = torch.randn(5, 8, requires_grad=True)
    y = module.Experts(4, 8, 6)(x, torch.zeros(5, 1, dtype=torch.long), torch.ones(5, 1))
    with pytest.raises(RuntimeError, match="no gradients of gradients"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_another_torch_is_refused(module, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.13.0")
    for name in [name for name in sys.modules if name == "athanor"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="was built for torch"):
        import athanor  # noqa: F401


def test_tokenizer_and_loader_give_what_prepare_wrote(module, athanor, tmp_path):
    data = make_data(athanor, tmp_path)
    text = "the quick brown fox\n\njumps"
    ours, theirs = module.Tokenizer(str(data.parent / "tokenizer.json")), Tokenizer.from_file(str(data.parent / "tokenizer.json"))
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids and ours.decode(ours.encode(text)) == text
    assert ours.vocab_size == theirs.get_vocab_size()
    batches = [batch for batch in itertools.islice(module.Loader(str(data), 4, seed=3), 3)]
    manifest = json.loads((pathlib.Path(data) / "manifest.json").read_text())
    assert all(batch.shape == (4, manifest["seq_len"]) and batch.dtype == torch.long for batch in batches)
    again = next(iter(module.Loader(str(data), 4, seed=3)))
    assert torch.equal(batches[0], again) and not torch.equal(batches[0], batches[1])
