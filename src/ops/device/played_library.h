#pragma once

namespace athanor::ops::device {

/// Registers forms for meta tensors of the ops that libtorch has for CUDA alone. To be called once.
void install_played_library();

}  // namespace athanor::ops::device
