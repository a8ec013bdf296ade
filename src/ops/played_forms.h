#pragma once

namespace athanor::ops {

/// Registers forms for meta tensors of libtorch's ops that have none in C++. A second call does nothing. Programs that
/// play no step, such as Python's, keep their own forms.
void install_played_forms();

}  // namespace athanor::ops
