#include "parallel/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor::inline parallel {
namespace {

// Rows of a process, by Span::Row. Those without a number are asynchronous.
constexpr int kTrainingRow = 1, kSavingRow = 2, kDeviceRow = 3;

struct TraceRow {
  int number;
  const char* name;
};
constexpr std::array<TraceRow, 3> kRows{{{kTrainingRow, "training"}, {kSavingRow, "saving"}, {kDeviceRow, "device"}}};

int row_of(Span::Row row) {
  switch (row) {
    case Span::Row::kSaving: return kSavingRow;
    case Span::Row::kDevice: return kDeviceRow;
    default: return kTrainingRow;
  }
}

bool may_overlap(Span::Row row) { return row == Span::Row::kFlight || row == Span::Row::kReading; }

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string numbers_of(const Span& span) {
  std::string text;
  for (const auto& [name, value] : span.numbers)
    text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", name, value);
  return text;
}

bool on_one_host(const std::vector<std::string>& hosts) {
  return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end();
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

std::vector<int> traced_ranks(const Layout& layout) {
  std::vector<int> shown = layout.group_of(GroupKind::kPipeline, 0);
  std::ranges::sort(shown);
  const int world = layout.world_size();
  std::vector<int> others;
  for (int rank = 0; rank < world; ++rank)
    if (!std::ranges::binary_search(shown, rank)) others.push_back(rank);
  const size_t room = shown.size() < kMostTracedRanks ? kMostTracedRanks - shown.size() : 0;
  const size_t more = std::min(room, others.size());
  for (size_t i = 0; i < more; ++i) shown.push_back(others[i * others.size() / more]);
  std::ranges::sort(shown);
  return shown;
}

void add_actions(const Pipeline& pipeline, SpanLog& log) {
  const auto since = pipeline.began().time_since_epoch();
  const int64_t began = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  for (const TimedAction& timed : pipeline.timeline()) {
    const Action& action = timed.action;
    log.open_always({Span::Row::kTraining,
                     text_of(action, pipeline.schedule().chunks),
                     action.work == Work::kForward ? "forward" : "backward",
                     began + ns(timed.begin_s),
                     began + ns(timed.end_s),
                     {{"microbatch", action.microbatch}, {"chunk", action.chunk}, {"waited_ns", ns(timed.waited_s)}}});
  }
}

TraceClock agree_on_clock(comm::Communicator& world, int64_t first_ns) {
  world.barrier();
  const int64_t origin = on_one_host(world.options().hosts) ? 0 : span_clock_ns();
  const Tensor before = at::full({1}, origin - first_ns, at::kLong);
  world.all_reduce(before, comm::Reduction::kMax).wait();
  return {origin - before.item<int64_t>()};
}

std::string trace_events(const SpanLog::Spans& spans, TraceClock clock, int rank, const std::string& host) {
  const std::string name = fmt::format("rank {}{}", rank, host.empty() ? "" : " (" + host + ")");
  std::string text = fmt::format(
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":{{\"name\":{1}}}}},\n"
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{0}}}}}",
      rank, quoted(name));
  for (const TraceRow& row : kRows) {
    const auto is_here = [&](const Span& span) { return !may_overlap(span.row) && row_of(span.row) == row.number; };
    if (std::ranges::none_of(spans.spans, is_here)) continue;
    text +=
        fmt::format(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}",
                    rank, row.number, row.name);
  }
  int64_t id = 0;
  for (const Span& span : spans.spans) {
    const std::string same = fmt::format("\"pid\":{},\"tid\":{},\"name\":{},\"cat\":{}", rank, row_of(span.row),
                                         quoted(span.name), quoted(span.category));
    const double begin = microseconds(span.begin_ns - clock.zero_ns), end = microseconds(span.end_ns - clock.zero_ns);
    if (may_overlap(span.row)) {
      const std::string key = fmt::format("{},\"id\":\"{}.{}\"", same, rank, id++);
      text += fmt::format(",\n{{\"ph\":\"b\",{},\"ts\":{:.3f},\"args\":{{{}}}}}", key, begin, numbers_of(span));
      text += fmt::format(",\n{{\"ph\":\"e\",{},\"ts\":{:.3f}}}", key, std::max(begin, end));
    } else {
      text += fmt::format(",\n{{\"ph\":\"X\",{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}}", same, begin,
                          std::max(0.0, end - begin), numbers_of(span));
    }
  }
  return text;
}

}  // namespace athanor::inline parallel
