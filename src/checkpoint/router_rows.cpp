#include "checkpoint/router_rows.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json_members.h"

namespace athanor::inline checkpoint {

RouterRows read_router_rows(const nlohmann::json& state, const std::string& key, const ModelConfig& model,
                            const std::string& where) {
  const auto found = state.find(key);
  if (found == state.end()) return {};
  RouterRows rows;
  try {
    rows = found->get<RouterRows>();
  } catch (const nlohmann::json::exception& error) {
    fail<CheckpointError>("{}: {} cannot be read ({}); take another checkpoint", where, key, json_reason(error));
  }
  const auto is_whole = [&](const std::vector<float>& row) {
    return static_cast<int64_t>(row.size()) == model.num_experts &&
           std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
  };
  ATHANOR_CHECK_CHECKPOINT(
      static_cast<int64_t>(rows.size()) == model.num_sparse_layers() && std::ranges::all_of(rows, is_whole),
      "{}: {} is not a finite number for each of {} experts in each of {} layers; take another checkpoint", where, key,
      model.num_experts, model.num_sparse_layers());
  return rows;
}

bool any_nonzero(const RouterRows& rows) {
  return std::ranges::any_of(rows,
                             [](const auto& row) { return std::ranges::any_of(row, [](float x) { return x != 0; }); });
}

}  // namespace athanor::inline checkpoint
