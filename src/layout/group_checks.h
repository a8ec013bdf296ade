#pragma once
// Checks [optimizer] and checkpoint.fresh_groups against the parameters of the whole model. A pipeline rank has only a
// part of the model, in which a correct pattern may match nothing.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

/// Returns a message for each pattern of optimizer.no_weight_decay, of groups and of checkpoint.fresh_groups that
/// matches no parameter, and for each two groups that take the same one. Muon on a vector has a message, too, and so
/// has optimizer.qk_clip on a model whose logits it cannot bound. The result is empty if there is no fault. If
/// model.from is set, the model must be resolved first (resolve_model_from in checkpoint/model_identity.h).
std::vector<std::string> find_group_faults(const RunConfig& config);

}  // namespace athanor::inline layout
