#include "bench/checkpoint_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "bench/disk.h"
#include "bench/timer.h"

namespace athanor::bench {
namespace {

using nlohmann::ordered_json;

using OfRound = std::function<double(const CheckpointRound&)>;

std::vector<double> each(const CheckpointFigures& figures, const OfRound& value) {
  std::vector<double> values;
  for (const CheckpointRound& round : figures.rounds) values.push_back(value(round));
  return values;
}

std::vector<double> all_steps(const CheckpointFigures& figures, std::vector<double> CheckpointRound::*steps) {
  std::vector<double> all;
  for (const CheckpointRound& round : figures.rounds)
    all.insert(all.end(), (round.*steps).begin(), (round.*steps).end());
  return all;
}

ordered_json spread(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax_element(values);
  return {{"median", median(values)}, {"min", *least}, {"max", *most}};
}

// A row of the table: what it is, its seconds, and the ratio to what it is compared with.
struct TableRow {
  std::string name;
  std::vector<double> seconds;
  double bytes = 0;  // 0: no rate
  std::string note = {};
};

std::string text_of(const TableRow& row) {
  const auto [least, most] = std::ranges::minmax_element(row.seconds);
  const std::string rate = row.bytes > 0 ? fmt::format("{:.0f} MB/s", row.bytes / median(row.seconds) * 1e-6) : "";
  return fmt::format("{:<34} {:>9.3f} {:>9.3f} {:>9.3f} {:>12}{}{}\n", row.name, median(row.seconds), *least, *most,
                     rate, row.note.empty() ? "" : "  ", row.note);
}

// Each ratio is that of one round, in which both were measured.
double step_ratio(const CheckpointRound& round) { return round.saving_step_s() / round.step_s(); }
double write_ratio(const CheckpointRound& round) { return round.plain_write_s / round.alone_s; }
double load_ratio(const CheckpointRound& round) { return round.plain_read_s / round.load_s; }
double steps_until_commit(const CheckpointRound& round) { return static_cast<double>(round.saving_steps_s.size()); }

ordered_json compared(const CheckpointFigures& figures, double CheckpointRound::*ours, double CheckpointRound::*plain,
                      const OfRound& ratio) {
  const auto seconds = each(figures, [&](const auto& round) { return round.*ours; });
  const auto plain_s = each(figures, [&](const auto& round) { return round.*plain; });
  return {{"seconds", spread(seconds)},
          {"mb_s", figures.bytes / median(seconds) * 1e-6},
          {"plain_seconds", spread(plain_s)},
          {"plain_mb_s", figures.bytes / median(plain_s) * 1e-6},
          {"ratio", spread(each(figures, ratio))}};
}

}  // namespace

double CheckpointRound::step_s() const { return median(steps_s); }
double CheckpointRound::saving_step_s() const { return median(saving_steps_s); }

ordered_json to_json(const CheckpointFigures& figures) {
  ordered_json out = {{"ranks", figures.ranks},         {"parameters", figures.parameters}, {"bytes", figures.bytes},
                      {"block_bytes", kDiskBlockBytes}, {"saves", figures.rounds.size()},   {"folder", figures.folder},
                      {"writers", figures.writers},     {"direct", figures.direct}};
  out["step"] = {{"seconds", spread(all_steps(figures, &CheckpointRound::steps_s))}};
  out["save"] = {{"stopped_s", spread(each(figures, [](const auto& round) { return round.stopped_s; }))},
                 {"step_s", spread(all_steps(figures, &CheckpointRound::saving_steps_s))},
                 {"step_ratio", spread(each(figures, step_ratio))},
                 {"steps", spread(each(figures, steps_until_commit))},
                 {"commit_s", spread(each(figures, [](const auto& round) { return round.commit_s; }))}};
  out["write"] = compared(figures, &CheckpointRound::alone_s, &CheckpointRound::plain_write_s, write_ratio);
  out["load"] = compared(figures, &CheckpointRound::load_s, &CheckpointRound::plain_read_s, load_ratio);
  out["memory"] = {{"pool_bytes", figures.pool_bytes},
                   {"above_pool_bytes", each(figures, [](const auto& round) { return round.above_pool_bytes; })}};
  for (size_t node = 0; node < figures.node_bytes.size(); ++node)
    out["nodes"].push_back({{"node", node}, {"bytes", figures.node_bytes[node]}});
  return out;
}

std::string to_text(const CheckpointFigures& figures) {
  const auto ratio = [&](const OfRound& value) { return median(each(figures, value)); };
  const auto of = [&](double CheckpointRound::*value) {
    return each(figures, [&](const auto& round) { return round.*value; });
  };
  const std::string plain = figures.direct ? "past the page cache" : "with a sync; the disk knows no O_DIRECT";
  std::string text =
      fmt::format("{} parameters, {} of checkpoint, {} rank(s); {} save(s) in {}\n{:<34} {:>9} {:>9} {:>9}\n",
                  format_thousands(static_cast<double>(figures.parameters)), format_bytes(figures.bytes), figures.ranks,
                  figures.rounds.size(), figures.folder, "", "median s", "min", "max");
  text += text_of({"step", all_steps(figures, &CheckpointRound::steps_s)});
  text += text_of({"step while a checkpoint is written", all_steps(figures, &CheckpointRound::saving_steps_s), 0,
                   fmt::format("{:.3f} of a step, {:.0f} step(s)", ratio(step_ratio), ratio(steps_until_commit))});
  text += text_of({"copy, for which steps wait", of(&CheckpointRound::stopped_s), figures.bytes});
  text += text_of({"on disk, after the copy began", of(&CheckpointRound::commit_s)});
  text += text_of({"write, no step under way", of(&CheckpointRound::alone_s), figures.bytes,
                   fmt::format("{:.3f} of plain writes", ratio(write_ratio))});
  text += text_of({"plain writes", of(&CheckpointRound::plain_write_s), figures.bytes, plain});
  text += text_of(
      {"load", of(&CheckpointRound::load_s), figures.bytes, fmt::format("{:.3f} of plain reads", ratio(load_ratio))});
  text += text_of({"plain reads", of(&CheckpointRound::plain_read_s), figures.bytes});
  const auto above = of(&CheckpointRound::above_pool_bytes);
  text += fmt::format("memory of a rank: {} for the copy, above it {} in the first save, {} in the last, at most {}\n",
                      format_bytes(figures.pool_bytes), format_bytes(std::max(0.0, above.front())),
                      format_bytes(std::max(0.0, above.back())),
                      format_bytes(std::max(0.0, *std::ranges::max_element(above))));
  for (size_t node = 0; node < figures.node_bytes.size() && figures.node_bytes.size() > 1; ++node)
    text += fmt::format("node {} writes {}\n", node, format_bytes(figures.node_bytes[node]));
  return text;
}

}  // namespace athanor::bench
