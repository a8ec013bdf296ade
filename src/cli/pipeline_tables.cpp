#include "cli/pipeline_tables.h"

#include <fmt/core.h>

#include "base/text.h"
#include "layout/memory.h"
#include "layout/schedule.h"
#include "layout/stages.h"

namespace athanor::inline cli {
namespace {

constexpr int kReadableRanks = 16, kReadableActions = 200;
constexpr int64_t kPlayedActions = 1 << 22;  // actions of all ranks: a second of simulation

std::string layers_of(const std::vector<StageLayers>& stages) {
  std::vector<std::string> parts;
  for (const auto& stage : stages) {
    if (stage.embeds) parts.emplace_back("embedding");
    parts.push_back(stage.num_layers() == 1 ? std::to_string(stage.first)
                                            : fmt::format("{}-{}", stage.first, stage.end - 1));
    if (stage.has_head) parts.emplace_back("output");
  }
  return join(parts);
}

std::string stage_table(const RunConfig& config, const Layout& layout) {
  const auto& p = config.parallelism;
  double whole = 0;
  for (const auto& stage : split_stages(config.model, p)) whole += stage_cost(config.model, stage);
  const int64_t seq_len = config.data.seq_len;
  std::string text = fmt::format("#\n# {:<8}{:>8}", "pipeline", "cost");
  if (seq_len > 0) text += fmt::format("{:>12}{:>12}{:>12}", "state", "activations", "memory");
  text += "  layers\n";
  const auto model_ranks = layout.group_of(GroupKind::kModel, 0);
  for (int i = 0; i < layout.pipeline(); ++i) {
    const auto stages = stages_of(config.model, p, i);
    double cost = 0;
    for (const auto& stage : stages) cost += stage_cost(config.model, stage);
    text += fmt::format("# {:<8}{:>7.1f}%", fmt::format("rank {}", i), 100 * cost / whole);
    if (seq_len > 0) {
      const int rank = model_ranks[static_cast<size_t>(i * layout.tensor())];
      const auto need = estimate_train_memory(config, seq_len, layout, rank, planned_multiplier(config),
                                              planned_hosts(config.topology, layout.world_size()));
      text += fmt::format("{:>12}{:>12}{:>12}", format_bytes(need.state_bytes), format_bytes(need.activation_bytes),
                          format_bytes(need.total()));
    }
    text += "  " + layers_of(stages) + "\n";
  }
  return text;
}

std::string schedule_text(const RunConfig& config, const Layout& layout) {
  const auto& p = config.parallelism;
  const int64_t microbatches = layout.microbatches(), chunks = p.virtual_stages;
  const double formula =
      static_cast<double>(layout.pipeline() - 1) / static_cast<double>(chunks * microbatches + layout.pipeline() - 1);
  std::string text = fmt::format("#\n# {}, {} microbatches: (p - 1) / (v m + p - 1) = {:.1f}% of the time waited",
                                 p.pipeline_schedule, microbatches, 100 * formula);
  const int64_t actions = 2 * microbatches * chunks;
  if (actions * layout.pipeline() > kPlayedActions) return text + "\n";
  const Schedule schedule =
      make_schedule(p.pipeline_schedule, layout.pipeline(), static_cast<int>(chunks), static_cast<int>(microbatches));
  const ScheduleFacts facts = check_schedule(schedule);
  std::vector<std::string> in_flight;
  for (const int most : facts.in_flight) in_flight.push_back(std::to_string(most));
  text += fmt::format("; played with equal stages {:.1f}%\n# in flight at most, by pipeline rank: {}\n",
                      100 * facts.bubble, join(in_flight));
  if (layout.pipeline() > kReadableRanks || actions > kReadableActions) return text;
  std::string lines = describe(schedule);
  for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) lines.insert(at, "#   ");
  return text + lines;
}

}  // namespace

std::string pipeline_tables(const RunConfig& config, const Layout& layout) {
  if (layout.pipeline() == 1) return "";
  return stage_table(config, layout) + schedule_text(config, layout);
}

}  // namespace athanor::inline cli
