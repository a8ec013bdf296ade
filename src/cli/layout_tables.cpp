#include "cli/layout_tables.h"

#include <fmt/core.h>

#include "base/text.h"
#include "cli/core.h"
#include "config/checks.h"
#include "layout/layout.h"
#include "layout/layout_faults.h"
#include "layout/memory.h"
#include "layout/schedule.h"
#include "layout/stages.h"
#include "layout/traffic.h"

namespace athanor::inline cli {
namespace {

std::string degrees_line(const Layout& layout, const RunConfig& config) {
  return fmt::format(
      "# {} ranks: pipeline {} × replicate {} × shard {} × tensor {}; {} data ranks, {} expert ranks, {} hold equal "
      "experts;\n# {} microbatches of {} on each data rank in a step\n",
      layout.world_size(), layout.pipeline(), layout.replicate(), layout.shard(), layout.tensor(), layout.data(),
      layout.expert(), layout.expert_data(), layout.microbatches(), config.train.micro_batch_size);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i < 3 || i + 1 == ranks.size()) parts.push_back(std::to_string(ranks[i]));
    if (i == 3 && ranks.size() > 4) parts.emplace_back("…");
  }
  return join(parts);
}

// Prints the groups of more than one rank.
std::string group_table(const Layout& layout) {
  std::string text = fmt::format("#\n# {:<20}{:>8}{:>8}  {}\n", "groups", "number", "ranks", "the first");
  for (const auto kind : kGroupKinds) {
    auto groups = layout.groups(kind);
    std::erase_if(groups, [](const std::vector<int>& group) { return group.size() == 1; });
    if (groups.empty()) continue;
    text += fmt::format("# {:<20}{:>8}{:>8}  {}\n", std::string("  ") + group_name(kind), groups.size(),
                        groups[0].size(), ranks_text(groups[0]));
  }
  return text;
}

// Returns the rank of a data rank that holds the most: stages differ.
int fullest_of_data_rank(const RunConfig& config, const Layout& layout) {
  int fullest = 0;
  int64_t most = 0;
  for (const int rank : layout.group_of(GroupKind::kModel, 0)) {
    const int64_t held = count_held_elements(config, layout, rank).total();
    if (held > most) fullest = rank, most = held;
  }
  return fullest;
}

std::string state_table(RunConfig config, int num_ranks, int rank) {
  const ShardingKind chosen = config.parallelism.sharding;
  std::string text =
      fmt::format("#\n# {:<25}{:>11}{:>12}{:>12}{:>12}{:>12}\n",
                  config.parallelism.pipeline_parallel_degree > 1 ? "state of the fullest rank" : "state of a rank",
                  "weights", "master", "moments", "gradient", "total");
  for (const auto& [word, sharding] : kWords<ShardingKind>) {
    config.parallelism.sharding = sharding;
    const auto bytes = count_state_bytes(config, Layout(config, num_ranks), rank, plan_optimizers(config.optimizer));
    const auto cell = [](int64_t value) { return format_bytes(static_cast<double>(value)); };
    text += fmt::format("# {:<24}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
                        fmt::format("  sharding {}{}", word, chosen == sharding ? " *" : ""), cell(bytes.weights),
                        cell(bytes.master), cell(bytes.optimizer), cell(bytes.gradient), cell(bytes.total()));
  }
  return text;
}

std::string traffic_table(const RunConfig& config, int num_ranks, const std::vector<std::vector<RankTraffic>>& sent) {
  if (sent.empty()) return "#\n# set data.seq_len for what a step sends\n";
  const auto supernode = supernodes_of(config.topology, num_ranks);
  std::vector<NameOrNames> mappings = {"expert_inner", "data_inner"};
  if (!std::holds_alternative<std::string>(config.parallelism.mapping)) mappings.push_back(config.parallelism.mapping);
  std::string text = fmt::format("#\n# sent in a step by all ranks, within supernodes and between them ({} of them)\n",
                                 supernode.back() + 1);
  for (const auto& mapping : mappings) {
    const auto* name = std::get_if<std::string>(&mapping);
    const bool chosen = mapping == config.parallelism.mapping;
    RunConfig mapped = config;
    mapped.parallelism.mapping = mapping;
    text += fmt::format("# {:<24}{:>12}{:>12}\n",
                        "mapping " + (name ? *name : std::string("[…]")) + (chosen ? " *" : ""), "inside", "outside");
    const auto lines = count_step_traffic(Layout(mapped, num_ranks), sent, supernode);
    const auto row = [](const std::string& what, double inside, double outside) {
      return fmt::format("# {:<24}{:>12}{:>12}\n", "  " + what, format_bytes(inside), format_bytes(outside));
    };
    double inside = 0, outside = 0;
    for (const auto& line : lines) {
      text += row(line.what, line.inside, line.outside);
      inside += line.inside, outside += line.outside;
    }
    text += row("together", inside, outside);
  }
  return text;
}

}  // namespace

std::string layout_tables(const RunConfig& config, int num_ranks) {
  const Layout layout(config, num_ranks);
  std::string text = degrees_line(layout, config);
  if (!is_resolved(config.model)) return text;
  std::vector<MemoryNeed> needs;
  std::vector<std::vector<RankTraffic>> sent;
  if (config.data.seq_len > 0) {
    const PlanArguments arguments{config, layout, needs, sent};
    call_core("plan", &arguments);  // it plays a step of each stage
  }
  return text + group_table(layout) + pipeline_tables(config, layout, needs) +
         state_table(config, num_ranks, fullest_of_data_rank(config, layout)) + traffic_table(config, num_ranks, sent);
}

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

std::string stage_table(const RunConfig& config, const Layout& layout, const std::vector<MemoryNeed>& needs) {
  const auto& p = config.parallelism;
  double whole = 0;
  for (const auto& stage : split_stages(config.model, p)) whole += stage_cost(config.model, stage);
  std::string text = fmt::format("#\n# {:<8}{:>8}", "pipeline", "cost");
  if (!needs.empty()) text += fmt::format("{:>12}{:>12}{:>12}", "state", "activations", "memory");
  text += "  layers\n";
  for (int i = 0; i < layout.pipeline(); ++i) {
    const auto stages = stages_of(config.model, p, i);
    double cost = 0;
    for (const auto& stage : stages) cost += stage_cost(config.model, stage);
    text += fmt::format("# {:<8}{:>7.1f}%", fmt::format("rank {}", i), 100 * cost / whole);
    if (!needs.empty()) {
      const MemoryNeed& need = needs[static_cast<size_t>(i)];
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
                                 p.pipeline_schedule.word(), microbatches, 100 * formula);
  const int64_t actions = 2 * microbatches * chunks;
  if (actions * layout.pipeline() > kPlayedActions) return text + "\n";
  const Schedule schedule = make_schedule(p.pipeline_schedule.word(), layout.pipeline(), static_cast<int>(chunks),
                                          static_cast<int>(microbatches));
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

std::string pipeline_tables(const RunConfig& config, const Layout& layout, const std::vector<MemoryNeed>& needs) {
  if (layout.pipeline() == 1) return "";
  return stage_table(config, layout, needs) + schedule_text(config, layout);
}

}  // namespace athanor::inline cli
