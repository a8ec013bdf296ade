"""What compilers make of the innermost loops: a register that is stored in each step halves their speed, and changes no result."""
import re
import shutil
import subprocess

import pytest

# The tile of most rows on each path, by its name in the library, with the multiply-adds of a step.
TILES = {"avx2::(anonymous namespace)::part<6, true>(": 12, "avx2::(anonymous namespace)::part<6, false>(": 12,
         "(anonymous namespace)::float_tile<12, true>(": 24, "(anonymous namespace)::float_tile<12, false>(": 24,
         "(anonymous namespace)::bf16_tile<12, true>(": 24, "(anonymous namespace)::bf16_tile<12, false>(": 24}
MULTIPLY_ADD = re.compile(r"\bv(fmadd|dpbf16)")
STORE_TO_STACK = re.compile(r"\bvmov\w+\s+%[xyz]mm\d+,-?(0x)?[0-9a-f]*\(%r[sb]p")
JUMP_BACK = re.compile(r"\bj\w+\s+([0-9a-f]+) <")


def loops(code):
    """The innermost loops of a function's disassembly, each as its lines."""
    at = {int(line.split(":")[0], 16): i for i, line in enumerate(code)}
    found = []
    for i, line in enumerate(code):
        jump = JUMP_BACK.search(line)
        begin = at.get(int(jump[1], 16)) if jump else None
        if begin is not None and begin <= i:
            found.append((begin, i))
    return [code[a:b + 1] for a, b in found if not any((a, b) != (c, d) and a <= c and d <= b for c, d in found)]


@pytest.mark.parametrize("name", TILES)
def test_a_step_of_a_tile_stores_no_register(name, athanor):
    library = athanor.path.parent / "libathanor_core.so"
    if not shutil.which("objdump") or not library.exists():
        pytest.skip("no objdump, or no libathanor_core.so beside the program")
    symbols = subprocess.run(["nm", "-C", library], capture_output=True, text=True, check=True).stdout.splitlines()
    address = next((line.split()[0] for line in symbols if name in line), None)
    if address is None:
        pytest.skip("this processor's build has no such tile")
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address=0x{address}", f"--stop-address={int(address, 16) + 8192}",
                           library], capture_output=True, text=True, check=True).stdout
    code = [line.strip() for line in re.split(r"^[0-9a-f]+ <.*>:$", text, flags=re.M)[1].splitlines() if line.strip()]
    tile_loops = [loop for loop in loops(code) if sum(bool(MULTIPLY_ADD.search(line)) for line in loop) >= TILES[name]]
    assert tile_loops, "no loop has the multiply-adds of a step"
    for loop in tile_loops:
        assert not [line for line in loop if STORE_TO_STACK.search(line)]
