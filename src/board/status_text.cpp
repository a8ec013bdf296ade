// The two forms of the state of a run.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "board/run_status.h"

namespace athanor::board {
namespace {

using nlohmann::ordered_json;

// "0.2 s", "34 s", "12 min", "5.1 h"
std::string duration_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(0.0, seconds));
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string counted(int64_t number, const std::string& what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string end_text(const RunEnd& end) {
  std::string text = fmt::format("attempt {} has ended after step {}: {} (exit code {})", end.attempt, end.step,
                                 end.cause, end.exit_code);
  if (end.rank) text += fmt::format("; rank {}", *end.rank);
  return end.text.empty() ? text : text + ": " + end.text;
}

// What the process of a rank does, as far as it is not plain work.
std::string state_text(const SeenRank& seen) {
  const RankReport& rank = seen.rank;
  if (seen.silent_s > 0) return fmt::format("no report for {}, last seen in ", duration_text(seen.silent_s));
  if (rank.state == "stopped") return "stopped by a signal or a debugger, ";
  if (rank.state == "gone")
    return rank.gone_s ? fmt::format("gone for {}, last seen in ", duration_text(*rank.gone_s)) : "gone, last seen in ";
  return "";
}

std::string behind_line(const SeenRank& seen, const BehindRank& behind) {
  const RankReport& rank = seen.rank;
  std::string text = fmt::format("  rank {} on {} (process {}): {}step {}, {}", rank.rank, seen.node, rank.process,
                                 state_text(seen), rank.step, rank.phase);
  if (rank.microbatch >= 0) text += fmt::format(", microbatch {}", rank.microbatch);
  if (rank.waits) text += ", in " + describe_wait(*rank.waits);
  if (seen.silent_s == 0) text += fmt::format(", no change for {}", duration_text(rank.change_s));
  if (rank.torn) text += " (stopped while it wrote this)";
  if (behind.num_waiting > 0)
    text += fmt::format("; {} for its {}",
                        behind.num_waiting == 1 ? "1 rank waits" : fmt::format("{} ranks wait", behind.num_waiting),
                        behind.call);
  return text + "\n";
}

std::string behind_text(const RunStatus& status) {
  const Behind& behind = status.behind;
  if (behind.num_behind == 0 && behind.in_a_circle.empty()) return "no rank is behind\n";
  std::string text;
  if (behind.num_behind == 0) {
    text = fmt::format("{} for calls that all of their ranks have started, or for one another:\n",
                       counted(behind.num_waiting, "rank") + (behind.num_waiting == 1 ? " waits" : " wait"));
    for (size_t i : behind.in_a_circle) text += behind_line(status.ranks[i], {i, 0, ""});
    return text;
  }
  text = fmt::format("{} behind:\n", counted(behind.num_behind, "rank"));
  for (const BehindRank& rank : behind.ranks) text += behind_line(status.ranks[rank.index], rank);
  const int64_t more = behind.num_behind - std::ssize(behind.ranks);
  if (more > 0) text += fmt::format("  and {} more\n", more);
  return text;
}

// The nodes whose reports are late, with the first and the last of their ranks.
std::string late_text(const std::vector<LateNode>& late) {
  std::vector<std::string> nodes;
  for (const LateNode& node : late) {
    const auto [first, last] = std::ranges::minmax(node.ranks);
    nodes.push_back(
        fmt::format("{} ({}) for {}", node.node,
                    first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                    duration_text(node.report_s)));
  }
  return fmt::format(
      "no report from {}: the node is lost or frozen, its collector was killed with the job, or it cannot write\n",
      join_first(nodes, kMostNamed));
}

int64_t last_step(const RunStatus& status) {
  int64_t step = status.end ? status.end->step : 0;
  for (const SeenRank& seen : status.ranks) step = std::max(step, seen.rank.step);
  return step;
}

ordered_json json_of(const SeenRank& seen, const BehindRank& behind) {
  const RankReport& rank = seen.rank;
  ordered_json json{{"rank", rank.rank},
                    {"node", seen.node},
                    {"process", rank.process},
                    {"state", rank.state},
                    {"step", rank.step},
                    {"phase", rank.phase},
                    {"phase_s", rounded(rank.phase_s)},
                    {"change_s", rounded(rank.change_s)},
                    {"seen", rounded(seen.seen)}};
  if (rank.microbatch >= 0) json["microbatch"] = rank.microbatch;
  if (rank.gone_s) json["gone_s"] = rounded(*rank.gone_s);
  if (seen.silent_s > 0) json["silent_s"] = rounded(seen.silent_s);
  if (rank.torn) json["torn"] = true;
  if (rank.waits) json["in"] = describe_wait(*rank.waits);
  json["waiting"] = behind.num_waiting;
  if (!behind.call.empty()) json["call"] = behind.call;
  return json;
}

}  // namespace

std::string status_text(const std::string& run, const RunStatus& status) {
  if (status.end) return fmt::format("{}: {}\n", run, end_text(*status.end));
  std::string text = fmt::format("{}: attempt {}, step {}; {} of {} on {}; last change {} ago\n", run,
                                 status.attempt > 0 ? std::to_string(status.attempt) : "(starting)", last_step(status),
                                 std::ssize(status.ranks), counted(status.job_ranks, "rank"),
                                 counted(std::ssize(status.nodes), "node"), duration_text(status.last_change_s));
  if (status.has_ended())
    text += "no process of it is left, and its history has no end of this attempt: it was killed\n";
  else if (!status.late.empty())
    text += late_text(status.late);
  for (const PhaseCount& phase : status.phases)
    text += fmt::format("  {:<9} {:>6} {}, {}\n", phase.phase, phase.num_ranks, phase.num_ranks == 1 ? "rank" : "ranks",
                        steps_text(phase.first_step, phase.last_step));
  for (const auto& [state, number] : {std::pair("stopped", status.num_stopped), std::pair("gone", status.num_gone),
                                      std::pair("ended", status.num_ended)})
    if (number > 0) text += fmt::format("{} {} {}\n", number, number == 1 ? "process" : "processes", state);
  return text + behind_text(status);
}

ordered_json status_json(const std::string& run, const RunStatus& status) {
  ordered_json json{{"format", 1},
                    {"run", run},
                    {"attempt", status.attempt},
                    {"step", last_step(status)},
                    {"job_ranks", status.job_ranks},
                    {"nodes", status.nodes},
                    {"running", status.num_running},
                    {"stopped", status.num_stopped},
                    {"gone", status.num_gone},
                    {"ended", status.num_ended},
                    {"last_change_s", rounded(status.last_change_s)},
                    {"oldest_report_s", rounded(status.oldest_report_s)},
                    {"phases", ordered_json::array()},
                    {"behind", ordered_json::array()},
                    {"num_behind", status.behind.num_behind},
                    {"waiting", status.behind.num_waiting}};
  for (const PhaseCount& phase : status.phases)
    json["phases"].push_back({{"phase", phase.phase},
                              {"ranks", phase.num_ranks},
                              {"first_step", phase.first_step},
                              {"last_step", phase.last_step}});
  for (const LateNode& node : status.late)
    json["late"].push_back({{"node", node.node}, {"report_s", rounded(node.report_s)}, {"ranks", node.ranks}});
  for (const BehindRank& rank : status.behind.ranks) json["behind"].push_back(json_of(status.ranks[rank.index], rank));
  for (size_t i : status.behind.in_a_circle) json["in_a_circle"].push_back(json_of(status.ranks[i], {i, 0, ""}));
  if (const auto& end = status.end) {
    json["end"] = {
        {"attempt", end->attempt}, {"step", end->step}, {"exit_code", end->exit_code}, {"cause", end->cause}};
    if (end->rank) json["end"]["rank"] = *end->rank;
    if (!end->text.empty()) json["end"]["text"] = end->text;
  }
  return json;
}

}  // namespace athanor::board
