// athanor bench pipeline runs every schedule on ranks that are threads of this process and sleep instead of computing.
// So the bubble is that of the schedule and of the messages, whatever cores there are; it is printed next to its
// formula.

#include <fmt/core.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/core_entry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/timer.h"
#include "comm/thread_ranks.h"
#include "config/parallelism_config.h"
#include "layout/timeline_picture.h"
#include "parallel/pipeline_timeline.h"

namespace athanor::bench {
namespace {

/// Sleeps, then returns a new tensor.
class SleepingStage : public Stage {
 public:
  SleepingStage(int number, int num_stages, double forward_s, int64_t floats)
      : first_(number == 0), last_(number + 1 == num_stages), forward_s_(forward_s),
        activation_(at::full({floats}, number, at::kFloat)) {}

  void expect(int64_t, int64_t) override {
    const Spec spec{activation_.sizes().vec(), at::kFloat};
    if (!first_) in = spec;
    if (!last_) out = spec;
  }
  Tensor forward(int, Tensor x, const Labels*) override {
    if (!first_) require(x, -1);
    sleep(forward_s_);
    return last_ ? Tensor{} : activation_;
  }
  Tensor backward(int, Tensor dy, GradientReducer* /*sums*/) override {
    if (!last_) require(dy, 1);
    sleep(2 * forward_s_);
    return first_ ? Tensor{} : activation_;
  }
  LossParts take_parts(int) override { return {}; }
  Tensor forward_only(Tensor, const Labels*) override { return activation_; }
  TokenScores score(Tensor, const Labels*) override { return {}; }

 private:
  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  /// Checks that the received tensor is the one that the neighbouring stage made.
  void require(const Tensor& received, int side) const {
    const bool right = received.eq(activation_ + side).all().item<bool>();
    ATHANOR_CHECK_AS(Error, right, "wrong, so not timed: a stage got what another one sent");
  }

  bool first_, last_;
  double forward_s_;
  Tensor activation_;
};

struct Measured {
  Timeline timeline;  ///< timeline of the last round
  std::vector<double> bubbles, seconds;
  int64_t bytes_sent = 0;  ///< bytes that all ranks send in a step
};

Measured measure(const Schedule& schedule, const BenchPipelineArguments& given) {
  std::vector<Microbatch> microbatches(static_cast<size_t>(schedule.microbatches));
  for (Microbatch& microbatch : microbatches) microbatch.tokens = at::zeros({1, 1}, at::kLong);
  const double forward_s = 1e-3 * given.forward_ms / schedule.chunks;
  Measured measured;
  std::mutex mutex;
  comm::run_ranks(schedule.ranks, [&](comm::World& world) {
    std::vector<std::unique_ptr<SleepingStage>> stages;
    std::vector<Stage*> chunks;
    for (int c = 0; c < schedule.chunks; ++c) {
      stages.push_back(std::make_unique<SleepingStage>(schedule.stage_of(world.rank(), c), schedule.num_stages(),
                                                       forward_s, given.activation_kib * 256));
      chunks.push_back(stages.back().get());
    }
    Pipeline pipeline(chunks, world.all());
    pipeline.set_schedule(schedule);
    pipeline.forward_backward(microbatches);  // the messages of the first step allocate memory
    for (int round = 0; round < given.rounds; ++round) {
      world.all().barrier();
      world.all().reset_traffic();
      pipeline.forward_backward(microbatches);
      const auto& bytes_of = world.all().traffic().bytes_of;
      const auto sent = bytes_of.find(Collective::kSend);
      const int64_t bytes = sent == bytes_of.end() ? 0 : sent->second;
      Timeline timeline = gather_timeline(pipeline, world.all());
      std::lock_guard lock(mutex);
      measured.bytes_sent += bytes;
      if (world.rank() > 0) continue;
      double end_s = 0;
      for (const auto& rank : timeline) end_s = std::max(end_s, rank.back().end_s);
      measured.seconds.push_back(end_s);
      measured.bubbles.push_back(bubble_of(timeline));
      measured.timeline = std::move(timeline);
    }
  });
  measured.bytes_sent /= given.rounds;
  return measured;
}

std::string in_flight_text(const ScheduleFacts& facts) {
  std::vector<std::string> numbers;
  for (const int held : facts.in_flight) numbers.push_back(std::to_string(held));
  return join(numbers, " ");
}

void draw(const Schedule& schedule, const Timeline& measured, const std::string& folder) {
  const Timeline played = play_schedule(schedule);
  const auto stem = (std::filesystem::path(folder) / schedule.name).string();
  write_file_atomically(stem + ".svg",
                        draw_timeline(played, {schedule_title(schedule), TimelinePicture::Unit::kForwards}));
  write_file_atomically(stem + "-measured.svg", draw_timeline(measured, {timeline_title(schedule, measured)}));
}

std::vector<Schedule> schedules(const BenchPipelineArguments& given) {
  std::vector<std::string> names = words_of<PipelineSchedule>();
  if (!given.schedule.empty()) names = {given.schedule};
  std::vector<Schedule> all;
  for (const std::string& name : names) {
    const int chunks = name == word_of(PipelineSchedule::kInterleaved1F1B) ? given.virtual_stages : 1;
    const auto faults = find_schedule_faults(name, given.ranks, chunks, given.microbatches);
    if (!faults.empty() && given.schedule.empty()) {
      fmt::print("left out: {}\n", join(faults, "; "));
      continue;
    }
    all.push_back(make_schedule(name, given.ranks, chunks, given.microbatches));
  }
  return all;
}

int run(const BenchPipelineArguments& given) {
  ATHANOR_CHECK(given.pictures.empty() || std::filesystem::is_directory(given.pictures),
                "--pictures: there is no folder {}", given.pictures);
  const std::vector<Schedule> all = schedules(given);
  if (given.actions) {
    for (const Schedule& schedule : all) fmt::print("{}\n{}\n", schedule.name, describe(schedule));
  }
  fmt::print(
      "{} ranks as threads, {} microbatches, {:g} ms of sleep in a rank's forward and {:g} ms in its backward, {} KiB "
      "for each boundary and microbatch; medians of {} steps\n",
      given.ranks, given.microbatches, given.forward_ms, 2 * given.forward_ms, given.activation_kib, given.rounds);
  fmt::print("{:<18} {:>7} {:>11} {:>9} {:>11} {:>11}  {}\n", "", "bubble", "by formula", "step ms", "by formula",
             "sent a step", "most microbatches in flight, by rank");
  nlohmann::json list = nlohmann::json::array();
  for (const Schedule& schedule : all) {
    const ScheduleFacts facts = check_schedule(schedule);
    const Measured measured = measure(schedule, given);
    const double bubble = median(measured.bubbles), step_s = median(measured.seconds);
    const double ideal_s = 3e-3 * given.forward_ms * given.microbatches / (1 - facts.bubble);
    fmt::print("{:<18} {:>6.1f}% {:>10.1f}% {:>9.1f} {:>11.1f} {:>11}  {}\n", schedule.name, 100 * bubble,
               100 * facts.bubble, 1e3 * step_s, 1e3 * ideal_s, format_bytes(static_cast<double>(measured.bytes_sent)),
               in_flight_text(facts));
    list.push_back({{"schedule", schedule.name},
                    {"ranks", schedule.ranks},
                    {"chunks", schedule.chunks},
                    {"microbatches", schedule.microbatches},
                    {"bubble", bubble},
                    {"ideal_bubble", facts.bubble},
                    {"step_s", step_s},
                    {"ideal_s", ideal_s},
                    {"bytes_sent", measured.bytes_sent},
                    {"in_flight", facts.in_flight}});
    if (!given.pictures.empty()) draw(schedule, measured.timeline, given.pictures);
  }
  if (!given.json.empty()) write_file_atomically(given.json, list.dump(1) + "\n");
  return 0;
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_pipeline) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchPipelineArguments*>(arguments);
  bench::set_up(given);
  return bench::run(given);
}
