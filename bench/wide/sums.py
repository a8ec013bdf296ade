"""Sums that are rounded to a type after each term (accumulate.cpp)."""
import ctypes
import pathlib
import subprocess

import torch

HERE = pathlib.Path(__file__).resolve().parent
TORCH_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NUMBERS = {"bf16": 0, "fp16": 1, "fp32": 2}
library = None


def compile_into(folder):
    global library
    path = folder / "accumulate.so"
    options = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["c++", *options, "-I", HERE.parents[1] / "src", "-o", path, HERE / "accumulate.cpp"], check=True)
    library = ctypes.CDLL(str(path))
    library.sum_of_squares.restype = ctypes.c_double


def rounded(values, kind):
    return values.to(TORCH_TYPES[kind]).float()


def to_bf16(values):
    return rounded(values, "bf16").contiguous()


def sum_of_squares(matrix, lanes, kind):
    """The elements are rounded to that type, and the running sums are in it too."""
    values = rounded(matrix, kind).contiguous()
    sizes = [ctypes.c_int64(size) for size in (values.numel(), lanes)]
    return library.sum_of_squares(ctypes.c_void_p(values.data_ptr()), *sizes, NUMBERS[kind])


def multiply(a, b, kind):
    assert a.is_contiguous() and b.is_contiguous()
    out = torch.empty(a.shape[0], b.shape[1])
    if kind == "fp32":
        return torch.mm(a, b, out=out)
    sizes = [ctypes.c_int64(size) for size in (a.shape[0], a.shape[1], b.shape[1])]
    library.multiply(*(ctypes.c_void_p(each.data_ptr()) for each in (a, b, out)), *sizes, NUMBERS[kind])
    return out
