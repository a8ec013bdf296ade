#pragma once
// Names of settings that people bring from other systems.

#include <string_view>
#include <utility>
#include <vector>

namespace athanor::inline config {

/// Returns what a key of transformers, nanoGPT, Megatron, torchtitan, nanotron, OLMo-core or DeepSpeed is called here
/// ("optimizer.lr"), with a remark if it is not the same; "" for an unknown key.
/// @param key  without its table.
std::string_view our_name_of(std::string_view key);

/// True for a key that turns on what Athanor does not have, such as "context_parallel_degree".
bool is_not_supported(std::string_view key);

/// All pairs of such a key and our name.
const std::vector<std::pair<std::string_view, std::string_view>>& foreign_keys();

}  // namespace athanor::inline config
