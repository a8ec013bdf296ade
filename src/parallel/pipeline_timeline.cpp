#include "parallel/pipeline_timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "layout/timeline_picture.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

bool on_one_host(const std::vector<std::string>& hosts) {
  return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end();
}

constexpr int64_t kTimes = 3;  // for each action: begin, end, waited

}  // namespace

Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks) {
  const auto& own = pipeline.timeline();
  // Times count from the host's start, or from the moment when all have left the same barrier.
  ranks.barrier();
  const Clock::time_point zero = on_one_host(ranks.options().hosts) ? Clock::time_point{} : Clock::now();
  const double began_s = seconds(pipeline.began() - zero);
  const auto n = static_cast<int64_t>(own.size());
  const Tensor times = at::empty({n, kTimes}, at::kDouble), all = at::empty({ranks.size(), n, kTimes}, at::kDouble);
  auto* row = times.mutable_data_ptr<double>();
  for (const TimedAction& timed : own) {
    for (const double value : {began_s + timed.begin_s, began_s + timed.end_s, timed.waited_s}) *row++ = value;
  }
  ranks.all_gather(all, times).wait();
  const double first = all.select(-1, 0).min().item<double>();
  Timeline timeline(static_cast<size_t>(ranks.size()));
  const auto* next = all.const_data_ptr<double>();
  for (size_t r = 0; r < timeline.size(); ++r) {
    for (const Action& action : pipeline.schedule().actions[r]) {
      timeline[r].push_back({action, next[0] - first, next[1] - first, next[2]});
      next += kTimes;
    }
  }
  return timeline;
}

std::string timeline_json(const Schedule& schedule, const Timeline& timeline, int64_t step) {
  nlohmann::ordered_json report = {{"schedule", schedule.name},
                                   {"ranks", schedule.ranks},
                                   {"chunks", schedule.chunks},
                                   {"microbatches", schedule.microbatches},
                                   {"step", step},
                                   {"bubble", bubble_of(timeline)},
                                   {"own_bubble", bubble_of(play_schedule(schedule, mean_costs(schedule, timeline)))},
                                   {"ideal_bubble", check_schedule(schedule).bubble}};
  auto& ranks = report["timeline"] = nlohmann::ordered_json::array();
  for (const auto& rank : timeline) {
    auto& row = ranks.emplace_back(nlohmann::ordered_json::array());
    for (const TimedAction& timed : rank) {
      row.push_back({{"action", text_of(timed.action, schedule.chunks)},
                     {"begin_s", timed.begin_s},
                     {"end_s", timed.end_s},
                     {"waited_s", timed.waited_s}});
    }
  }
  return report.dump(1) + "\n";
}

void write_timeline(const Pipeline& pipeline, comm::Communicator& ranks, const std::filesystem::path& folder,
                    int64_t step, bool writes) {
  const Timeline timeline = gather_timeline(pipeline, ranks);
  if (!writes || ranks.rank() != 0) return;
  const std::filesystem::path stem = folder / fmt::format("pipeline-step-{}", step);
  write_file_atomically(stem.string() + ".json", timeline_json(pipeline.schedule(), timeline, step));
  write_file_atomically(stem.string() + ".svg",
                        draw_timeline(timeline, {timeline_title(pipeline.schedule(), timeline)}));
}

}  // namespace athanor
