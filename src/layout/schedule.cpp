#include "layout/schedule.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "layout/schedules/schedules.h"

namespace athanor::inline layout {
namespace schedules {

std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                int num_ahead) {
  const size_t n = forwards.size(), ahead = std::min(static_cast<size_t>(num_ahead), n);
  std::vector<Action> actions(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (size_t i = 0; i < n; ++i) {
    if (ahead + i < n) actions.push_back(forwards[ahead + i]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

void require_one_chunk(const char* name, int chunks, Findings& found) {
  found.require(chunks == 1,
                "pipeline_schedule \"{}\" knows one stage of each rank, and virtual_stages is {}: set "
                "parallelism.virtual_stages = 1, or parallelism.pipeline_schedule = \"interleaved_1f1b\"",
                name, chunks);
}

}  // namespace schedules

namespace {

using schedules::Kind;

const std::array kKinds = {&schedules::kGpipe, &schedules::kOneForwardOneBackward, &schedules::kInterleaved};
constexpr int64_t kMostMicrobatches = 1 << 20;

const Kind* find_kind(const std::string& name) {
  const auto value = find_value<PipelineSchedule>(name);
  if (!value) return nullptr;
  return *std::ranges::find(kKinds, *value, [](const Kind* kind) { return kind->value; });
}

std::string unknown(const std::string& name) {
  const std::vector<std::string> names = words_of<PipelineSchedule>();
  return fmt::format("there is no pipeline_schedule \"{}\"{}; set parallelism.pipeline_schedule to one of {}", name,
                     did_you_mean(name, names), join(names));
}

}  // namespace

std::vector<std::string> find_schedule_faults(const std::string& name, int ranks, int chunks, int64_t microbatches) {
  const Kind* kind = find_kind(name);
  if (!kind) return {unknown(name)};
  Findings found;
  // A single rank has no bubble to fill: with any schedule it computes one microbatch after the other.
  if (ranks == 1) {
    found.require(chunks == 1,
                  "parallelism.virtual_stages ({}) cuts a pipeline's ranks, and there is one: set it to 1, or raise "
                  "parallelism.pipeline_parallel_degree",
                  chunks);
    found.require(microbatches >= 1, "a step needs a microbatch, and there are {}: {}", microbatches,
                  schedules::kMoreMicrobatches);
  } else {
    kind->require(ranks, chunks, microbatches, found);
  }
  found.require(microbatches <= kMostMicrobatches,
                "a step of {} microbatches is more than a schedule may list ({}): raise train.micro_batch_size",
                microbatches, kMostMicrobatches);
  return found.take();
}

Schedule make_schedule(const std::string& name, int ranks, int chunks, int microbatches) {
  ATHANOR_ASSERT(ranks >= 1);
  const std::vector<std::string> faults = find_schedule_faults(name, ranks, chunks, microbatches);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  const Kind& kind = ranks == 1 ? schedules::kOneForwardOneBackward : *find_kind(name);
  Schedule schedule{name, ranks, chunks, microbatches, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.actions.push_back(kind.actions_of(rank, {ranks, chunks, microbatches}));
  }
  return schedule;
}

std::string text_of(const Action& action, int chunks) {
  const char letter = action.work == Work::kForward ? 'F' : 'B';
  return chunks == 1 ? fmt::format("{}{}", letter, action.microbatch)
                     : fmt::format("{}{}.{}", letter, action.microbatch, action.chunk);
}

std::string describe(const Schedule& schedule) {
  std::string text;
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const Action& a : schedule.actions[rank]) text += " " + text_of(a, schedule.chunks);
    text += "\n";
  }
  return text;
}

}  // namespace athanor::inline layout
