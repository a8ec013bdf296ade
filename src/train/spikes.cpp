#include "train/spikes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text.h"
#include "config/ranges.h"
#include "record/step_lines.h"

namespace athanor::inline train {
namespace {

using nlohmann::json;

json level_json(const UsualLevel& level) {
  return {{"recent", level.recent},           {"borrows", level.borrows},
          {"before", level.before},           {"returned", level.returned},
          {"beyond", level.beyond},           {"lowest", level.lowest},
          {"lowest_step", level.lowest_step}, {"told", {level.told.median, level.told.high}}};
}

// A list of numbers that are not below 0.
bool are_numbers(const json& list, size_t at_least, size_t at_most) {
  return list.is_array() && list.size() >= at_least && list.size() <= at_most &&
         std::ranges::all_of(list, [](const json& value) {
           return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
         });
}

// Returns whether `level` could be set.
bool read_level(const json& stored, UsualLevel& level) {
  const bool borrows = stored.at("borrows").get<bool>();
  const size_t least = borrows ? UsualLevel::kLeast : 0,
               most = borrows ? 2 * UsualLevel::kLeast - 1 : UsualLevel::kWindow;
  const json &recent = stored.at("recent"), &before = stored.at("before"), &returned = stored.at("returned"),
             &beyond = stored.at("beyond"), &lowest = stored.at("lowest"), &told = stored.at("told"),
             &lowest_step = stored.at("lowest_step");
  constexpr size_t kRow = UsualLevel::kLasting - 1;
  if (!are_numbers(recent, least, most) || !are_numbers(before, 0, UsualLevel::kWindow) ||
      !are_numbers(returned, 0, before.empty() ? 0 : kRow) || !are_numbers(beyond, 0, kRow) ||
      !are_numbers(json::array({lowest}), 1, 1) || !are_numbers(told, 2, 2) || !lowest_step.is_number_integer() ||
      lowest_step < 0 || lowest_step > kMaxSteps)
    return false;
  level.recent = recent.get<std::deque<double>>();
  level.borrows = borrows;
  level.before = before.get<std::deque<double>>();
  level.returned = returned.get<std::deque<double>>();
  level.beyond = beyond.get<std::deque<double>>();
  level.lowest = lowest;
  level.lowest_step = lowest_step;
  level.told = {told[0], told[1]};
  return true;
}

}  // namespace

SpikeFindings Spikes::take(int64_t step, double loss, double grad_norm) {
  SpikeFindings all;
  const bool repeats = step < repeated_until_;
  const auto take_one = [&](UsualLevel& level, double value) {
    const std::string described = value > level.limit() ? level.describe(value) : "";
    const auto rise = level.take(step, value, repeats);
    if (rise) all.rises.push_back(*rise);
    if (!described.empty()) all.spike += (all.spike.empty() ? "" : "; ") + described;
  };
  take_one(loss_, loss);
  take_one(norm_, grad_norm);
  return all;
}

void Spikes::continue_after(const Spikes& rolled_back) {
  loss_.beyond = rolled_back.loss_.beyond;
  norm_.beyond = rolled_back.norm_.beyond;
  repeated_until_ = rolled_back.repeated_until_;
}

json Spikes::to_json() const {
  return {{"loss", level_json(loss_)}, {"grad_norm", level_json(norm_)}, {"repeated_until", repeated_until_}};
}

Spikes Spikes::from_json(const json& stored, const std::string& where) {
  Spikes spikes;
  bool is_read = false;
  try {
    const json& until = stored.at("repeated_until");
    is_read = read_level(stored.at("loss"), spikes.loss_) && read_level(stored.at("grad_norm"), spikes.norm_) &&
              until.is_number_integer() && until >= 0 && until <= kMaxSteps;
    if (is_read) spikes.repeated_until_ = until;
  } catch (const json::exception&) {
  }
  ATHANOR_CHECK_CHECKPOINT(is_read,
                           "{}: its record of losses and gradient norms (spikes) is not one that a run writes; take "
                           "another checkpoint",
                           where);
  return spikes;
}

Spikes spikes_of_history(const std::string& metrics_lines, int64_t first, int64_t last) {
  Spikes spikes;
  std::istringstream lines(metrics_lines);
  for (std::string line; std::getline(lines, line);) {
    const auto read = step_numbers_of(line);
    if (read && read->step > first && read->step <= last) spikes.take(read->step, read->loss, read->grad_norm);
  }
  return spikes;
}

}  // namespace athanor::inline train
