#pragma once
// The ops on tensors of an accelerator. Each op in ops/ calls `takes` and passes its arguments on; callers need not
// know.
//
// Kernels are those of kernels/cuda/ if nvcc compiled them, else the portable forms in torch ops, which any device of
// libtorch runs. Matrix products and attention are libtorch's. All of this also runs on CPU tensors, with the bodies of
// the CUDA kernels in loops: ops_device_test runs the ops' own tests on it.

#include "ops/attention.h"
#include "ops/cache_attention.h"
#include "ops/experts.h"
#include "ops/gelu.h"
#include "ops/linear_cross_entropy.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tensor.h"

namespace athanor::ops::device {

/// True if an op on `x` belongs here: x is not on the host. (ops_device_test links another definition.)
bool takes(const Tensor& x);

// Each function computes the op of its name in ops/.
Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form);
Tensor layer_norm(const Tensor& x, double eps);
NormedSum add_rms_norm(const Tensor& x, const Tensor& branch, const Weight& weight, const RmsForm& form);
NormedSum add_layer_norm(const Tensor& x, const Tensor& branch, double eps);
Tensor rope(const Tensor& x, const Rotation& rotation);
Tensor swiglu(const Tensor& gate, const Tensor& up);
Tensor gelu(const Tensor& x, GeluForm form);
Tensor geglu(const Tensor& gate, const Tensor& up);
Tensor soft_cap(const Tensor& x, double cap);
void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap);
Tensor embedding(const Tensor& tokens, const Weight& weight);
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const DocumentLengths& documents,
                 const AttentionOptions& options);
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options);
void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b);
Tensor linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, double grad_scale,
                            int64_t chunk_tokens, const LabelDraw& draw, double cap);
TokenLosses token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                         double cap);

/// Computes ops::experts. It works on the largest possible number of rows, padded to groups of 8, and every product
/// leaves out the unused rows. So the host need not wait for the number of rows. In bf16 a product of weight gradients
/// by libtorch (device/grouped.h) is rounded once before it is added to the fp32 bucket: it has no other result type.
Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& experts,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine);

namespace without_kernels {
// The forms used if nvcc did not compile our kernels; any device, including the CPU.
Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form);
Tensor embedding(const Tensor& tokens, const Weight& weight);
TokenLosses cross_entropy(const Tensor& logits, const Tensor& targets, double grad_scale);
Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& experts,
               int64_t first_local_expert, int64_t num_local_experts);
}  // namespace without_kernels

}  // namespace athanor::ops::device
