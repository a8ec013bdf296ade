#pragma once
// The ops of libtorch on guarded tensors.

namespace athanor::guarded {

/// Registers them; called once, by install().
void register_ops();

}  // namespace athanor::guarded
