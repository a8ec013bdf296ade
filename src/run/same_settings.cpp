#include "run/same_settings.h"

#include <ATen/ATen.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/short_texts.h"
#include "config/changes.h"
#include "config/dump.h"
#include "parallel/share.h"

namespace athanor::inline run {
namespace {

RunConfig without_what_may_differ(RunConfig config) {
  const auto forget = [](auto& data) {
    data.path.clear();
    for (SourceConfig& source : data.sources) source.path.clear();
  };
  forget(config.data);
  for (auto& stage : config.train.stages) forget(stage);
  config.data.num_threads = config.train.num_threads = 0;
  config.train.device = DeviceKind::kAuto;
  if (config.train.dtype_was_auto) config.train.dtype = "auto";  // each host chose one; the first rank's is kept
  return config;
}

// Compares a text of all ranks. `changes_from` describes how this rank's differs from the first rank's. Collective.
template <class DescribeChanges>
void require_same_text(const std::string& own, comm::World& world, const std::string& remedy,
                       const DescribeChanges& changes_from) {
  if (world.size() == 1) return;
  const auto hash = static_cast<int64_t>(hash_u64(own) >> 1);
  const at::Tensor ends = at::tensor({hash, -hash}, at::kLong);
  world.all().all_reduce(ends, comm::Reduction::kMax).wait();
  if (ends[0].item<int64_t>() == -ends[1].item<int64_t>()) return;

  constexpr size_t kShown = 8;
  const std::string first = broadcast_text(world.all(), own);
  const auto changes = comm::all_gather_texts(world.all(), join(changes_from(first), "; "));
  std::vector<std::string> lines;
  size_t others = 0;
  for (size_t rank = 0; rank < changes.size(); ++rank) {
    if (changes[rank].empty() || ++others > kShown) continue;
    lines.push_back(
        fmt::format("rank {} ({}) has other settings than rank 0: {}", rank, world.hosts()[rank], changes[rank]));
  }
  if (others > kShown) lines.push_back(fmt::format("and so have {} more", others - kShown));
  fail<ConfigError>("{}; {}", join(lines, "\n"), remedy);
}

}  // namespace

void require_same_settings(const RunConfig& config, comm::World& world) {
  const RunConfig compared = without_what_may_differ(config);
  require_same_text(dump_run_config(compared, /*with_help=*/false), world,
                    "start all ranks with the same file and the same --set",
                    [&](const std::string& first) { return describe_config_changes(first, compared); });
}

void require_same_options(const Options& options, comm::World& world) {
  nlohmann::json own;
  for (const auto& [name, value] : options) own[name] = value;
  require_same_text(own.dump(), world, "start all ranks with the same options", [&](const std::string& first) {
    const auto of_first = nlohmann::json::parse(first);
    std::vector<std::string> changes;
    for (const auto& [name, value] : options) {
      const std::string there = of_first.value(name, "");
      if (there != value) changes.push_back(fmt::format("{} was \"{}\", is \"{}\"", name, there, value));
    }
    return changes;
  });
}

}  // namespace athanor::inline run
