#pragma once
// Fifty deterministic steps of a small dense and a small sparse model: the guard of every change of numerics.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct SmokeStep {
  double loss = 0, grad_norm = 0;
  bool operator==(const SmokeStep& other) const;  ///< bit by bit
};

struct SmokeRun {
  std::string model;  ///< "dense" or "sparse", with the type it is trained in where it is trained in both
  std::vector<SmokeStep> steps;
  std::vector<std::string> findings;  ///< of the built-in checks; empty when all is well
};

/// Whether every product of this process is made on avx2 or avx512, which give the same bits.
bool on_widening_path();

/// The dense model in fp32, the sparse one in bf16 (on a widening path each in both), on two threads and data made from
/// counters. Built-in checks: the
/// first loss against ln(vocabulary), every parameter (and expert) receives gradient and moves, the router's entropy, a
/// falling loss.
std::vector<SmokeRun> run_smoke();

/// Bits depend on how matrices are multiplied and on the library. The paths that widen have one file for all machines
/// with AVX2 and FMA, "x86_64-v3-widening-libtorch2.13.0"; else each kind has its own:
/// "x86_64-amd-avx512_bf16-libtorch2.13.0".
std::string machine_kind();

/// Golden files hold each number as its bits, with the decimal form beside it for people.
std::string golden_text(const std::vector<SmokeRun>& runs, const std::string& kind);

/// A line for the first step of each model that differs. @throws DataError if the text is no golden file.
std::vector<std::string> compare_with_golden(const std::vector<SmokeRun>& runs, const std::string& golden,
                                             const std::string& name);

}  // namespace athanor
