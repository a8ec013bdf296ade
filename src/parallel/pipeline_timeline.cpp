#include "parallel/pipeline_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "layout/timeline_picture.h"
#include "parallel/share.h"
#include "parallel/trace.h"

namespace athanor::inline parallel {
namespace {

using Json = nlohmann::json;

// Returns the action that an event of add_actions shows.
TimedAction action_of(const Json& event) {
  const Json& numbers = event.at("args");
  const double begin_s = event.at("ts").get<double>() / 1e6;
  return {{event.at("cat") == "forward" ? Work::kForward : Work::kBackward, numbers.at("microbatch").get<int>(),
           numbers.at("chunk").get<int>()},
          begin_s,
          begin_s + event.at("dur").get<double>() / 1e6,
          numbers.at("waited_ns").get<double>() / 1e9};
}

bool is_action(const Json& event) {
  const auto numbers = event.find("args");
  return event.value("ph", "") == "X" && numbers != event.end() && numbers->contains("waited_ns");
}

}  // namespace

Timeline timeline_of_trace(const Json& events, const Schedule& schedule, const std::vector<int>& ranks) {
  Timeline timeline(ranks.size());
  for (const Json& event : events) {
    const auto rank = std::ranges::find(ranks, event.value("pid", -1));
    if (rank != ranks.end() && is_action(event))
      timeline[static_cast<size_t>(rank - ranks.begin())].push_back(action_of(event));
  }
  double first_s = std::numeric_limits<double>::infinity();
  for (size_t r = 0; r < timeline.size(); ++r) {
    ATHANOR_CHECK(timeline[r].size() == schedule.actions[r].size(), "of {} actions of rank {} the trace has {}",
                  schedule.actions[r].size(), ranks[r], timeline[r].size());
    for (const TimedAction& timed : timeline[r]) first_s = std::min(first_s, timed.begin_s);
  }
  for (auto& rank : timeline) {
    for (TimedAction& timed : rank) timed.begin_s -= first_s, timed.end_s -= first_s;
  }
  return timeline;
}

Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks) {
  SpanLog log;
  log.start(std::chrono::duration_cast<std::chrono::nanoseconds>(pipeline.began().time_since_epoch()).count());
  add_actions(pipeline, log);
  const SpanLog::Spans spans = log.stop();
  const std::string own = trace_events(spans, agree_on_clock(ranks, spans.begin_ns), ranks.rank(), "");
  const std::vector<std::string> texts = gather_texts(ranks, own);
  if (ranks.rank() != 0) return {};
  std::vector<int> all(texts.size());
  std::iota(all.begin(), all.end(), 0);
  Json events = Json::array();
  for (const std::string& text : texts)
    for (Json& event : Json::parse("[" + text + "]")) events.push_back(std::move(event));
  return timeline_of_trace(events, pipeline.schedule(), all);
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

void write_timeline(const Timeline& timeline, const Schedule& schedule, const std::filesystem::path& folder,
                    int64_t step) {
  const std::filesystem::path stem = folder / fmt::format("pipeline-step-{}", step);
  write_file_atomically(stem.string() + ".json", timeline_json(schedule, timeline, step));
  write_file_atomically(stem.string() + ".svg", draw_timeline(timeline, {timeline_title(schedule, timeline)}));
}

}  // namespace athanor::inline parallel
