#include "report/rank_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/bounded_json.h"
#include "record/json_lines.h"

namespace athanor::inline report {
namespace {

using Line = nlohmann::json;

constexpr std::string_view kTimes = "\"rank_times\":", kExtremes = "\"rank_time_extremes\":";

constexpr size_t kMostListed = 256;  // runs list at most 32 ranks

bool is_comm(size_t part) { return std::string_view(kRankParts[part]).ends_with("_comm"); }
bool is_compute(size_t part) { return std::string_view(kRankParts[part]).ends_with("_compute"); }

bool read_times(const Line& line, RankTimesAt& at) {
  for (size_t part = 0; part < kRankParts.size(); ++part) {
    const auto found = line.find(kRankParts[part]);
    if (found == line.end() || !found->is_array()) return false;
    for (const Line& value : *found) {
      if (!value.is_number()) return false;
      at.seconds[part].push_back(value.get<double>());
    }
    if (at.seconds[part].size() != at.num_ranks() || at.num_ranks() > kMostListed) return false;
  }
  return at.num_ranks() > 0;
}

int rank_in(const Line& extreme) {
  const auto rank = extreme.at("rank").get<double>();
  return rank >= 0 && rank < 1e9 ? static_cast<int>(rank) : -1;
}

RankExtremesAt::Of read_extreme(const Line& of) {
  return {of.at("least").at("s").get<double>(), of.at("mean").get<double>(), of.at("most").at("s").get<double>(),
          rank_in(of.at("least")), rank_in(of.at("most"))};
}

template <class At>
void add(std::vector<At>& list, At at) {
  while (!list.empty() && list.back().step >= at.step) list.pop_back();
  list.push_back(std::move(at));
}

void read_line(std::string_view text, RankRecord& record) {
  const Line line = read_json(text);
  if (!line.is_object()) return;
  try {
    const double step = line.at("step").get<double>();
    if (const auto found = line.find("rank_times"); found != line.end()) {
      RankTimesAt at{step, {}};
      if (read_times(*found, at)) add(record.times, std::move(at));
    }
    if (const auto found = line.find("rank_time_extremes"); found != line.end())
      add(record.extremes, {step, read_extreme(found->at("compute")), read_extreme(found->at("comm"))});
  } catch (const Line::exception&) {
    // another version wrote it
  }
}

}  // namespace

double RankTimesAt::sum_of(size_t rank, bool of_comm) const {
  double sum = 0;
  for (size_t part = 0; part < kRankParts.size(); ++part)
    if (of_comm ? is_comm(part) : is_compute(part)) sum += seconds[part][rank];
  return sum;
}

RankRecord read_rank_record(const std::filesystem::path& metrics) {
  RankRecord record;
  for_each_line(metrics, 0, [&](std::string_view line) {
    if (line.find(kTimes) != line.npos || line.find(kExtremes) != line.npos) read_line(line, record);
  });
  const size_t ranks = record.times.empty() ? 0 : record.times.back().num_ranks();
  std::erase_if(record.times, [&](const RankTimesAt& at) { return at.num_ranks() != ranks; });
  return record;
}

}  // namespace athanor::inline report
