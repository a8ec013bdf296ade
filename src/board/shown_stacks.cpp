#include "board/shown_stacks.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/process.h"
#include "base/text.h"

namespace athanor::board {
namespace {

std::string why_none_of(const std::string& run, const SeenRank& seen, bool has_collector) {
  if (!seen.rank.is_there()) return "its process has gone, and its stack with it";
  if (seen.node != host_name())
    return fmt::format("it is on {}: run `athanor status {} --stacks={}` there", seen.node, run, seen.rank.rank);
  return has_collector ? "the collector of this node does not have it" : "this node's collector does not answer";
}

// The groups in which the rank has started calls, with their number.
std::string calls_text(const RankReport& rank) {
  std::vector<std::string> groups;
  for (const GroupReport& group : rank.groups)
    if (group.started > 0) groups.push_back(fmt::format("{} ({} ranks) {}", group.name, group.size, group.started));
  std::string text = groups.empty() ? "  no collective was started\n" : "  collectives started: " + join(groups) + "\n";
  if (rank.waits) text += fmt::format("  waits for {}\n", describe_wait(*rank.waits));
  return text;
}

}  // namespace

std::vector<ShownStack> shown_stacks(const std::string& run, const RunStatus& status, const std::vector<int>& ranks,
                                     const std::optional<std::vector<RankStack>>& stacks) {
  std::vector<ShownStack> shown;
  for (const int rank : ranks) {
    const auto seen = std::ranges::find(status.ranks, rank, [](const SeenRank& each) { return each.rank.rank; });
    if (seen == status.ranks.end()) continue;
    ShownStack one{*seen, std::nullopt, ""};
    for (const RankStack& stack : stacks.value_or(std::vector<RankStack>()))
      if (stack.rank == rank && stack.process == seen->rank.process && seen->node == host_name()) one.stack = stack;
    if (!one.stack) one.why_none = why_none_of(run, *seen, stacks.has_value());
    shown.push_back(std::move(one));
  }
  return shown;
}

std::string stacks_text(const std::vector<ShownStack>& shown) {
  std::string text;
  for (const ShownStack& each : shown) {
    const RankReport& rank = each.seen.rank;
    text += fmt::format("\nrank {} on {} (process {}, {}): step {}, {}\n", rank.rank, each.seen.node, rank.process,
                        rank.state, rank.step, rank.phase);
    text += calls_text(rank);
    if (!each.stack)
      text += "  no stack: " + each.why_none + "\n";
    else if (each.stack->how == "none")
      text += "  no stack: " + each.stack->text + "\n";
    else
      text += each.stack->text;
  }
  return text;
}

nlohmann::ordered_json stacks_json(const std::vector<ShownStack>& shown) {
  auto json = nlohmann::ordered_json::array();
  for (const ShownStack& each : shown) {
    const RankReport& rank = each.seen.rank;
    nlohmann::ordered_json one{{"rank", rank.rank},
                               {"node", each.seen.node},
                               {"process", rank.process},
                               {"how", each.stack ? each.stack->how : "none"},
                               {"text", each.stack ? each.stack->text : each.why_none},
                               {"groups", nlohmann::ordered_json::array()}};
    for (const GroupReport& group : rank.groups)
      one["groups"].push_back({{"name", group.name}, {"size", group.size}, {"started", group.started}});
    if (rank.waits) one["waits"] = describe_wait(*rank.waits);
    json.push_back(std::move(one));
  }
  return json;
}

}  // namespace athanor::board
