#include "config/mapping.h"

#include <algorithm>

#include "base/text.h"
#include "config/findings.h"

namespace athanor::inline config {
namespace {

const std::vector<std::string> kDataInner = {"pipeline", "expert", "replicate", "shard", "context", "tensor"};

}  // namespace

std::vector<std::string> axis_names() { return {"pipeline", "replicate", "shard", "expert", "context", "tensor"}; }

std::vector<std::string> axes_of(const NameOrNames& mapping) {
  if (const auto* name = std::get_if<std::string>(&mapping)) {
    return *name == "data_inner" ? kDataInner : axis_names();
  }
  auto axes = std::get<std::vector<std::string>>(mapping);
  // An axis of one rank may have any position.
  if (std::ranges::find(axes, "context") == axes.end()) axes.emplace_back("context");
  return axes;
}

std::vector<std::string> find_mapping_faults(const NameOrNames& mapping) {
  Findings found;
  if (const auto* name = std::get_if<std::string>(&mapping)) {
    found.require(*name == "expert_inner" || *name == "data_inner",
                  "parallelism.mapping: expected expert_inner, data_inner or a list of axes, got \"{}\"{}", *name,
                  did_you_mean(*name, {"expert_inner", "data_inner"}));
    return found.take();
  }
  const auto& listed = std::get<std::vector<std::string>>(mapping);
  const auto known = axis_names();
  for (const auto& axis : listed) {
    found.require(std::ranges::count(known, axis) == 1, "parallelism.mapping: \"{}\" is not an axis{}; axes are {}",
                  axis, did_you_mean(axis, known), join(known));
  }
  for (const auto& axis : known) {
    const auto times = std::ranges::count(listed, axis);
    found.require(times > 0 || axis == "context",
                  "parallelism.mapping lacks \"{}\": every axis has its place, also one "
                  "of a single rank (context may be left out)",
                  axis);
    found.require(times <= 1, "parallelism.mapping has \"{}\" {} times; name it once", axis, times);
  }
  return found.take();
}

}  // namespace athanor::inline config
