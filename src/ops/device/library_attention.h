#pragma once
// Attention over all documents of a microbatch in one call, by the kernels that libtorch has on CUDA.

#include <functional>

#include "ops/attention.h"

namespace athanor::ops::device {

enum class AttentionForm {
  kFlash,      ///< libtorch's flash kernel: bf16, heads of at most 256 elements; key heads are never repeated
  kEfficient,  ///< libtorch's memory-efficient kernel, which takes a key head for each query head
  kSpans       ///< a call for each document, once for neighbouring sequences with equal lengths; any device
};

/// Returns the first form that takes these arguments.
/// @param num_documents  of the tables, with the empty ones.
/// @param options  the memory-efficient kernel is given no window, and no kernel has a soft cap or sinks.
/// @param runs  tells if the device has the kernel of a form; it is asked only about forms that take the arguments.
AttentionForm attention_form(at::ScalarType dtype, int64_t head_dim, int64_t num_documents,
                             const AttentionOptions& options, const std::function<bool(AttentionForm)>& runs);

/// Returns whether forward and backward of a form run on the device of `x` with heads of its last dim: it lets them
/// compute one token, once for each device, type and size. A libtorch may be built without them, and refuses old GPUs.
bool runs_here(AttentionForm form, const Tensor& x);

/// Compute attention with autograd. Sums have a fixed order in each run.
/// @param offsets  DocumentTables::offsets; undefined if each sequence is one document.
Tensor flash_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                       const AttentionOptions& options = {});
Tensor efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                           const AttentionOptions& options = {});

}  // namespace athanor::ops::device
