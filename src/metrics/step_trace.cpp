#include "metrics/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "parallel/pipeline_timeline.h"
#include "parallel/share.h"
#include "parallel/trace.h"
#include "record/run_folder.h"

namespace athanor::inline metrics {
namespace {

void record_groups(const Mesh& mesh, const std::shared_ptr<SpanLog>& log) {
  for (const GroupKind kind : kGroupKinds) {
    mesh.host_group(kind).record_spans(log);
    mesh.group(kind).record_spans(log);
  }
}

std::string facts_of(const TrainState& state, const SpanLog::Spans& spans, size_t shown) {
  const Layout& layout = state.model.mesh.layout();
  return nlohmann::ordered_json{
      {"step", state.position.step},
      {"ranks", layout.world_size()},
      {"ranks_shown", shown},
      {"pipeline_schedule", layout.pipeline() > 1 ? state.model.pipeline.schedule().name : ""},
      {"spans_left_out_on_rank_0", spans.num_left_out},
      {"athanor", build_info().version}}
      .dump();
}

}  // namespace

StepTrace::StepTrace(TrainState& state, Mesh& mesh, RunContext& at) : state_(state), mesh_(mesh), at_(at) {
  if (state.config.metrics.timeline_step <= state.position.step) return;
  log_ = std::make_shared<SpanLog>();
  layers_ = std::make_shared<LayerSpans>(log_);
  record_groups(mesh_, log_);
  at_.phases.spans = state_.phases.spans = std::make_shared<PhaseSpans>(log_, layers_);
}

StepTrace::~StepTrace() {
  if (!log_) return;
  at_.phases.spans = nullptr;
  record_groups(mesh_, nullptr);
}

void StepTrace::begin(int64_t step) {
  if (!log_ || step != state_.config.metrics.timeline_step) return;
  log_->start();  // again, if the step's batch was passed over
  state_.observers.remove(layers_);
  state_.observers.add(layers_);
}

void StepTrace::add_actions() {
  if (!log_ || !log_->is_on()) return;
  athanor::add_actions(state_.model.pipeline, *log_);
  if (state_.compute_clock) state_.compute_clock->add_spans(*log_);
}

void StepTrace::end() {
  if (!log_ || !log_->is_on() || state_.position.step < state_.config.metrics.timeline_step) return;
  state_.observers.remove(layers_);
  const SpanLog::Spans spans = log_->stop();
  write(spans);
}

void StepTrace::write(const SpanLog::Spans& spans) {
  comm::Communicator& world = mesh_.host_group(GroupKind::kWorld);
  const std::vector<int> shown = traced_ranks(mesh_.layout());
  const TraceClock clock = agree_on_clock(world, spans.begin_ns);
  std::string own;
  if (std::ranges::binary_search(shown, world.rank())) {
    const auto& hosts = world.options().hosts;
    const auto rank = static_cast<size_t>(world.rank());
    own = trace_events(spans, clock, world.rank(), rank < hosts.size() ? hosts[rank] : "");
  }
  std::vector<std::string> texts = gather_texts(world, own);
  if (!mesh_.is_first()) return;
  std::erase(texts, "");  // ranks that are not shown have none
  std::string trace =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":" + facts_of(state_, spans, shown.size()) + ",\n\"traceEvents\":[\n";
  trace += join(texts, ",\n") + "\n]}\n";
  const int64_t step = state_.position.step;
  const std::filesystem::path folder = RunFolder{state_.config.train.run_dir}.log();
  const std::filesystem::path file = folder / fmt::format("trace-step-{}.json", step);
  try {
    write_file_atomically(file, trace);
    if (mesh_.layout().pipeline() > 1) {
      const Schedule& schedule = state_.model.pipeline.schedule();
      const auto events = nlohmann::json::parse(trace).at("traceEvents");
      write_timeline(timeline_of_trace(events, schedule, mesh_.layout().group_of(GroupKind::kPipeline, 0)), schedule,
                     folder, step);
    }
    log::info("step {}: wrote its trace (Perfetto opens it): {}", step, file.string());
  } catch (const Error& error) {  // the training does not depend on it
    log::warn("step {}: the trace is not complete: {}", step, error.what());
  }
  if (spans.num_left_out > 0)
    log::warn(
        "step {}: the trace has the first {} spans of this rank, and after them only phases and microbatches; {} are "
        "left out. A smaller train.global_batch_size has fewer microbatches",
        step, SpanLog::kMostSpans, spans.num_left_out);
}

}  // namespace athanor::inline metrics
