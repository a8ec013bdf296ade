#pragma once
// An observer that logs how long the parts of a layer take in forward, recomputation and backward.

#include <memory>
#include <string>

#include "base/span_log.h"
#include "parallel/observer.h"

namespace athanor::inline parallel {

/// A part of forward lasts from the place before it to its own; one of backward, from its own place, where its gradient
/// arrives, to the next; after the final norm the output layer and the loss follow. On a device these are the times at
/// which the host queues the parts.
class LayerSpans : public Observer {
 public:
  explicit LayerSpans(std::shared_ptr<SpanLog> log) : log_(std::move(log)) {}

  /// An action of the pipeline begins now: what came before it belongs to no part.
  void begin_action();
  /// It ends: so does the part whose backward it computed last.
  void end_action();
  void observe(const Observation& observation) override;

 private:
  void add(const std::string& name, const char* category, int64_t end_ns);

  std::shared_ptr<SpanLog> log_;
  int64_t begin_ns_ = 0;      ///< where the present part begins; 0 between actions
  std::string backward_of_;   ///< the part whose backward is computed; empty: none is known
  std::string last_forward_;  ///< the last part of this action's forward
};

}  // namespace athanor::inline parallel
