#pragma once
// The traces of builds from before a trace was JSON, which are only read:
//
//   athanor-smoke-trace 1
//   fact commit 7fee44b9f357
//   model dense
//   0 initial model.norm.weight 128 float32 HASH
//   1 forward.0 model.layers.1.mlp 4x64x128 float32 HASH
//   values 2
//   3ff0000000000000 bff0000000000000
//   end 2
//
// `end` counts the tensors. The line `values` and its elements are there only if a single tensor was asked for.

#include <string>
#include <string_view>

#include "smoke/smoke_trace.h"

namespace athanor::inline smoke {

/// @param name  of the text, for messages.
/// @throws DataError with the line if the text is no such trace, or is cut off.
SmokeTrace parse_lines_trace(std::string_view text, const std::string& name);

}  // namespace athanor::inline smoke
