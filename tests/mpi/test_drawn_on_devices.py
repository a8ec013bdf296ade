"""Layouts drawn from seeds (layouts.py), with a device that the host plays for each rank, train as on CPUs.

The ranks are threads of one process (guarded_layout.cpp), and the seeds are those of test_verify.py, in float32.
"""
import json
import os
import subprocess

import pytest

import layouts
from test_verify import SAMPLE, SHORT_SAMPLE, slow_unless

# The short sample without the layout that has longrope, whose tables of angles a device has from the host as it has others.
SHORT = sorted({*SHORT_SAMPLE} - {1545})
STEPS, HESSIAN_INTERVAL = 3, 2  # those of verify: the interval is no longer


def promised_transfers(promised, drawn):
    """Those of the last step. A second backward sends the batch once more and fetches again what forward fetches; the numbers of the
    step still come back in one copy of each rank."""
    fields = drawn.fields
    if fields["optimizer.name"] != "sophiag" or (STEPS - 1) % min(fields.get("optimizer.hessian_interval", 10), HESSIAN_INTERVAL) != 0:
        return promised
    return {"to_device": 2 * promised["to_device"], "to_host": 2 * promised["to_host"] - drawn.ranks,
            "waits": 2 * promised["waits"] - drawn.ranks}


@pytest.mark.parametrize("seed", [slow_unless(seed in SHORT, seed) for seed in sorted({*SAMPLE, *SHORT_SAMPLE})])
def test_a_drawn_layout_of_devices_trains_as_on_cpus_in_every_order_of_the_streams(program, tmp_path, seed):
    drawn = layouts.draw_layout(seed)
    config = tmp_path / "run.toml"
    config.write_text(drawn.toml())
    done = subprocess.run([program("guarded_layout"), config, str(drawn.ranks)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    what = f"seed {seed}: {drawn.summary()}\n{drawn.toml()}{done.stdout}{done.stderr}"
    assert done.returncode == 0, what
    found = json.loads(done.stdout.splitlines()[-1])
    # Two runs differ by at most four times what runs on CPUs differ by whose products are added in other orders, that begin with weights
    # one unit larger, or that have fp32 where the layout sums or multiplies in bf16. Those may be equal by chance up to less than the
    # unit roundoff of float32, in which the losses of tokens are.
    assert found["difference"] <= 4 * max(found["rounding"], 2**-24), what
    # So they choose alike where those runs on CPUs do.
    assert found["same_targets"] and (found["same_choices"] or not found["cpus_choose_alike"]), what
    assert all(found["same_bits"].values()), what
    assert found["transfers"] == promised_transfers(found["promised"], drawn), what
