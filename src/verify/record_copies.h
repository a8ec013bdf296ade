#pragma once
// Records what several ranks hold copies of, so that a trace reports copies that differ (WholeTrace::faults).

#include <string>

#include "model/model_state.h"
#include "verify/trace.h"

namespace athanor::inline verify {

/// Adds the weights that forward reads.
void add_copies(const ModelState& model, int64_t step, Trace& trace);
/// Adds the summed gradients of the part that this rank updates. @param what  how their names begin: "step 1: the
/// summed gradient".
void add_gradient_copies(const ModelState& model, const std::string& what, Trace& trace);

}  // namespace athanor::inline verify
