#pragma once
// Writes what the ranks did in one step, metrics.timeline_step, as a trace (parallel/trace.h) and, of a pipeline, as a
// picture.

#include <memory>

#include "base/span_log.h"
#include "parallel/layer_spans.h"
#include "train/run_context.h"
#include "train/train_state.h"

namespace athanor::inline metrics {

/// The trace begins when the batch of the step is asked for, and ends when the next step may begin; so it has the
/// validation, the evaluation and the saves that follow the step. The step has the same bits as without it.
class StepTrace {
 public:
  /// Makes the groups of the mesh and the phases log their spans, if the configuration has a step to trace. The
  /// arguments must outlive this.
  StepTrace(TrainState& state, Mesh& mesh, RunContext& at);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Where other threads log; null if no step is traced.
  const std::shared_ptr<SpanLog>& log() const { return log_; }

  /// To be called before each step, with its number.
  void begin(int64_t step);
  /// To be called when the forward and backward of a step are complete.
  void add_actions();
  /// To be called when all that follows a step is done. Writes RUN/log/trace-step-N.json after the step that is traced,
  /// and RUN/log/pipeline-step-N.json and .svg if there is a pipeline. The first rank writes, and warns if it cannot.
  /// Collective over the world after that step, and for the other ones nothing.
  void end();

 private:
  void write(const SpanLog::Spans& spans);

  TrainState& state_;
  Mesh& mesh_;
  RunContext& at_;
  std::shared_ptr<SpanLog> log_;
  std::shared_ptr<LayerSpans> layers_;
};

}  // namespace athanor::inline metrics
