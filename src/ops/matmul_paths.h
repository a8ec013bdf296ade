#pragma once
// Which path (kernels/matmul_path.h) multiplies what in this process: by element type and kind of product.
//
// Bits depend on it, so it is set once, before the first product: by the environment (ATHANOR_MATMUL names one path for
// everything, for tests and timing), by a training run that has measured it (train/matmul_choice.h), or by what the CPU
// has. The other forms are each one's oracle.

#include <optional>

#include "kernels/matmul_path.h"
#include "ops/tensor.h"

namespace athanor::ops {

using kernels::MatmulPath;

/// A weight that all rows share with its gradients (kDense), one for each expert (kGrouped), scores and sums of values
/// (kAttention).
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

/// One path for everything; fp32 has no bf16 instructions to take and takes those of avx512.
MatmulPaths all_on(MatmulPath path);

/// The path that ATHANOR_MATMUL names. @throws ConfigError if there is none of that name, or this CPU lacks it.
std::optional<MatmulPath> asked_matmul_path();
/// The same for every type and kind; "default" asks for the default, which a run then takes without measuring.
std::optional<MatmulPaths> asked_matmul_paths();

/// Without measuring: asked_matmul_paths, else the widest tiles that this CPU has. Only where it multiplies bf16 in
/// units of their own is that type the library's, which alone uses them.
MatmulPaths default_matmul_paths();

/// What holds now: what was set last, or the default.
const MatmulPaths& matmul_paths();
/// Called where no product is underway.
void set_matmul_paths(const MatmulPaths& paths);

/// Whether there is a choice for x: fp32 and bf16 on the CPU.
bool has_paths(const Tensor& x);

/// How x is multiplied here. A tensor that is not on the CPU: the library's.
MatmulPath matmul_path(const Tensor& x, ProductKind kind);

}  // namespace athanor::ops
