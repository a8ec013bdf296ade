#pragma once
// The path (kernels/matmul_path.h) that multiplies in this process, by element type and kind of product.
//
// Bits depend on the path, so it is set once, before the first product: by the environment (ATHANOR_MATMUL names one
// path for everything, for tests and timing), by a training run that has measured it (run/matmul_choice.h), or by the
// CPU's features. Each path is tested with the others as oracles.

#include <optional>

#include "kernels/matmul_path.h"
#include "ops/tensor.h"

namespace athanor::ops {

using kernels::MatmulPath;

/// kDense: a weight that all rows share, with its gradients. kGrouped: one weight for each expert. kAttention: scores
/// and sums of values.
enum class ProductKind { kDense, kGrouped, kAttention };

struct MatmulPaths {
  struct OfType {
    MatmulPath dense, grouped, attention;

    MatmulPath& operator[](ProductKind kind);
    MatmulPath operator[](ProductKind kind) const;
    bool operator==(const OfType&) const = default;
  };
  OfType fp32, bf16;

  OfType& of(at::ScalarType type) { return type == at::kFloat ? fp32 : bf16; }
  const OfType& of(at::ScalarType type) const { return type == at::kFloat ? fp32 : bf16; }
  bool operator==(const MatmulPaths&) const = default;
};

/// Returns one path for everything; fp32 has no bf16 instructions and uses the avx512 path instead.
MatmulPaths all_on(MatmulPath path);

/// Returns the path that ATHANOR_MATMUL names; nothing if it is not set, empty or "default".
/// @throws ConfigError if there is no path of that name, or this CPU lacks it.
std::optional<MatmulPath> asked_matmul_path();
/// Returns that path for every type and kind. For "default" it returns the default paths, which a run then uses without
/// measuring; otherwise nothing.
std::optional<MatmulPaths> asked_matmul_paths();

/// Returns the paths to use without measuring: asked_matmul_paths, else the widest tiles that this CPU has, or the
/// library if it has none. The exception is bf16 on a CPU with a separate matrix unit for it: the library multiplies
/// it, since only the library uses that unit.
MatmulPaths default_matmul_paths();

/// Returns the paths now in use: those set last, or the default.
const MatmulPaths& matmul_paths();
/// To be called when no product is in progress.
void set_matmul_paths(const MatmulPaths& paths);

/// True if x's products have a choice of paths: fp32 and bf16 on the host.
bool has_paths(const Tensor& x);

/// Returns the path that multiplies x; the library's for a tensor that is not on the host.
MatmulPath matmul_path(const Tensor& x, ProductKind kind);

}  // namespace athanor::ops
