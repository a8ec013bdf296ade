#include "board/shown_stacks.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wall_clock.h"

namespace athanor::board {
namespace {

// Returns the chosen ranks that have a report, in the order in which they were chosen.
std::vector<SeenRank> seen_ranks(const RunStatus& status, const std::vector<int>& ranks) {
  std::vector<SeenRank> seen;
  for (const int rank : ranks) {
    const auto found = std::ranges::find(status.ranks, rank, [](const SeenRank& each) { return each.rank.rank; });
    if (found != status.ranks.end()) seen.push_back(*found);
  }
  return seen;
}

bool is_of(const RankStack& stack, const SeenRank& seen) {
  return stack.rank == seen.rank.rank && stack.process == seen.rank.process;
}

std::string why_none_of(const SeenRank& seen, bool is_own, const NodeAnswers& others) {
  if (!seen.rank.is_there()) return "its process has gone, and its stack with it";
  if (is_own) return "its process has gone meanwhile, or is not on the board of this node";
  if (!others.why_none.empty()) return fmt::format("{} was not asked: {}", seen.node, others.why_none);
  const auto answer = others.by_node.find(seen.node);
  if (answer == others.by_node.end())
    return fmt::format(
        "{} has not answered within {:.0f} s: its collector has gone with the job, is stopped, or does not see the "
        "run's folder; its last report is {:.0f} s old",
        seen.node, others.waited_s, std::max(0.0, unix_time_s() - seen.seen));
  if (answer->second.is_whole)
    return fmt::format("its process has gone meanwhile, or is not on the board of {}", seen.node);
  return fmt::format("{} has begun to answer, and then sent nothing for {:.0f} s", seen.node, kEachStack_s);
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

ShownStacks shown_stacks(const RunStatus& status, const std::vector<int>& ranks,
                         const std::optional<std::vector<RankStack>>& own, const NodeAnswers& others) {
  ShownStacks shown;
  for (const SeenRank& seen : seen_ranks(status, ranks)) {
    const bool is_own = own && seen.node == host_name();
    const auto answer = others.by_node.find(seen.node);
    std::vector<RankStack> stacks;
    if (is_own)
      stacks = *own;
    else if (answer != others.by_node.end())
      stacks = answer->second.stacks;
    ShownStack shown_stack{seen, std::nullopt, ""};
    for (const RankStack& stack : stacks)
      if (is_of(stack, seen)) shown_stack.stack = stack;
    if (!shown_stack.stack) shown_stack.why_none = why_none_of(seen, is_own, others);
    const bool is_missing = seen.rank.is_there() && !is_own && answer == others.by_node.end();
    if (is_missing && std::ranges::find(shown.unanswered, seen.node) == shown.unanswered.end())
      shown.unanswered.push_back(seen.node);
    shown.ranks.push_back(std::move(shown_stack));
  }
  return shown;
}

ShownStacks ask_for_shown_stacks(const std::filesystem::path& run_dir, const RunStatus& status,
                                 const std::vector<int>& ranks) {
  const std::vector<SeenRank> seen = seen_ranks(status, ranks);
  std::vector<int> own_ranks;
  for (const SeenRank& each : seen)
    if (each.node == host_name()) own_ranks.push_back(each.rank.rank);
  const auto own = own_ranks.empty() ? std::nullopt : ask_for_stacks(run_dir, own_ranks);
  std::vector<AskedRank> asked;
  for (const SeenRank& each : seen)
    if (each.rank.is_there() && !(own && each.node == host_name()))
      asked.push_back({each.rank.rank, each.rank.process, each.node});
  NodeAnswers others{{}, status.report_interval_s + kAnswerMargin_s, ""};
  try {
    if (!asked.empty()) others.by_node = StackQuestion(run_dir, asked).wait(others.waited_s);
  } catch (const Error& error) {
    others.why_none = error.what();
  }
  return shown_stacks(status, ranks, own, others);
}

std::string stacks_text(const ShownStacks& shown) {
  std::string text;
  for (const ShownStack& each : shown.ranks) {
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
  if (!shown.unanswered.empty()) text += "\nno answer from: " + join(shown.unanswered) + "\n";
  return text;
}

nlohmann::ordered_json stacks_json(const std::vector<ShownStack>& shown) {
  auto json = nlohmann::ordered_json::array();
  for (const ShownStack& each : shown) {
    const RankReport& rank = each.seen.rank;
    nlohmann::ordered_json row{{"rank", rank.rank},
                               {"node", each.seen.node},
                               {"process", rank.process},
                               {"how", each.stack ? each.stack->how : "none"},
                               {"text", each.stack ? each.stack->text : each.why_none},
                               {"groups", nlohmann::ordered_json::array()}};
    for (const GroupReport& group : rank.groups)
      row["groups"].push_back({{"name", group.name}, {"size", group.size}, {"started", group.started}});
    if (rank.waits) row["waits"] = describe_wait(*rank.waits);
    json.push_back(std::move(row));
  }
  return json;
}

}  // namespace athanor::board
