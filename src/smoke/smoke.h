#pragma once
// The smoke test: fifty deterministic steps of a small dense and a small sparse model. It guards every change of
// numerics.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline smoke {

class SmokeTracer;

/// Where the models are trained. CPUs of a kind give the same bits everywhere, so that golden files can keep them; on a
/// device a second run takes their place.
struct SmokePlace {
  SmokePlace(at::Device on = at::kCPU) : device(on), has_golden_files(on.is_cpu()) {}  // NOLINT: a device is a place

  at::Device device;
  bool has_golden_files;
};

struct SmokeStep {
  double loss = 0, grad_norm = 0;
  bool operator==(const SmokeStep& other) const;  ///< compares bit by bit
};

struct SmokeRun {
  /// "dense" (fp32), "sparse" (bf16), or the same models in the other type: "dense-bfloat16", "sparse-float32"
  std::string model;
  std::vector<SmokeStep> steps;
  std::vector<std::string> findings;  ///< failures of the built-in checks; empty if all is well
};

/// Returns true if this process makes every product on avx2 or avx512, which give the same bits.
bool on_widening_path();

/// Trains the dense model in fp32 and the sparse one in bf16 (on a widening path each in both types), on data made from
/// counters. It uses two threads, which libtorch stays set to. The first loss must be near the expected one
/// (expected_first_loss), and the first entropy of the routers near ln(experts). Every parameter (and expert) must
/// receive a gradient and move, and the loss must fall. Without golden files each model is trained in both types, and
/// its first ten steps a second time, which must have the same bits.
/// @param tracer  records the tensors; null: nothing does. A model takes no further step once it has all that is
///                asked for; nothing is checked then.
std::vector<SmokeRun> run_smoke(const SmokePlace& place = {}, SmokeTracer* tracer = nullptr);

/// Returns the version of libtorch that this build was compiled with: "2.13.0".
std::string libtorch_version();

/// Returns the name of the kind of machine. The bits of the results depend on the paths of matrix products and on the
/// library. The paths that widen have one file for all machines with AVX2 and FMA, "x86_64-v3-widening-libtorch2.13.0";
/// otherwise each kind has its own files, one for the tiles with bf16 instructions,
/// "x86_64-amd-avx512_bf16-libtorch2.13.0", and one for every other choice of paths, which its name has:
/// "x86_64-amd-avx512_bf16-library-libtorch2.13.0".
std::string machine_kind();

/// Returns the text of a golden file, which holds each number as its bits and, for people, in decimal form.
std::string golden_text(const std::vector<SmokeRun>& runs, const std::string& kind);

/// Returns the steps of each model in a golden file, in the order of the file.
/// @throws DataError if the text is no golden file.
std::vector<SmokeRun> read_golden(const std::string& golden, const std::string& name);

/// Returns a line about the first step of two runs of a model that differs; empty if all bits are equal.
/// @param here, there  what follows a number of each run: "", " in the golden file".
std::string difference_of(const SmokeRun& run, const SmokeRun& other, const std::string& here,
                          const std::string& there);

/// Returns a line for each model that differs, about its first step that does; empty if all bits are equal.
/// @param golden  text of a golden file.
/// @param name    its name, for messages.
/// @throws DataError if the text is no golden file.
std::vector<std::string> compare_with_golden(const std::vector<SmokeRun>& runs, const std::string& golden,
                                             const std::string& name);

}  // namespace athanor::inline smoke
