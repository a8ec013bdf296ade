#pragma once
// The ops of libtorch on guarded tensors.

#include <torch/library.h>

namespace athanor::guarded {

/// Registers them; called once, by install().
void register_ops();
/// Registers libtorch's kernels of attention.
void register_attention(torch::Library& library);

}  // namespace athanor::guarded
