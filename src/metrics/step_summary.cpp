#include "metrics/step_summary.h"

#include <algorithm>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "metrics/router_metrics.h"
#include "watch/update_watch.h"

namespace athanor::inline metrics {

StepSummary::StepSummary(const TrainState& state, Mesh& mesh, size_t num_stages)
    : state_(state), mesh_(mesh), traffic_(mesh),
      names_stages_(num_stages > 1 && state.run_config.train.batch_ramp.empty()), threads_(at::get_num_threads()),
      num_parameters_(count_parameters(state.config.model)) {
  const double of_a_device = state.config.metrics.gemm_peak_tflops * 1e12;
  const int ranks = mesh.group(GroupKind::kWorld).size();
  gemm_peak_ = of_a_device > 0 ? ops::GemmPeak{of_a_device * ranks, "metrics.gemm_peak_tflops"} : measure_peak();
  log::info("MFU is a share of {}{} ({})", format_flop_rate(gemm_peak_.flops),
            ranks > 1 ? fmt::format(", what {} ranks make together", ranks) : "", gemm_peak_.is);
}

// All ranks measure at the same time, and the rates are added: they may share processors.
ops::GemmPeak StepSummary::measure_peak() {
  comm::Communicator& world = mesh_.group(GroupKind::kWorld);
  const int threads = at::get_num_threads();
  if (threads != threads_) at::set_num_threads(threads_);
  world.barrier();
  ops::GemmPeak peak = ops::measure_gemm_peak_for(state_.model.parameters.compute());
  const at::Tensor flops = at::full({1}, peak.flops, at::kDouble);
  world.all_reduce(flops).wait();
  peak.flops = flops.item<double>();
  if (threads != threads_) at::set_num_threads(threads);
  return peak;
}

StepMetrics StepSummary::summarize(const StepReport& report, const Batch& batch, const RunContext& at, double data_s,
                                   double step_s) {
  const auto& config = state_.config;
  const double sequences = static_cast<double>(batch.num_sequences),
               layers = static_cast<double>(std::max<int64_t>(1, config.model.num_sparse_layers()));
  const double tokens = sequences * static_cast<double>(batch.seq_len);
  StepMetrics m;
  m.step = report.step;
  m.attempt = at.attempt;
  m.loss = report.parts.mean_loss();
  m.aux_loss = report.parts.aux_sum / (layers * sequences);
  m.z_loss = report.parts.z_sum / (layers * tokens);
  m.grad_norm = report.grad_norm;
  m.lr = report.lr;
  m.changed_share = static_cast<double>(report.changed) / static_cast<double>(num_parameters_);
  if (const auto clipped = report.optimizer_counts.find("sophiag_clipped"); clipped != report.optimizer_counts.end())
    m.clipped_share = static_cast<double>(clipped->second) /
                      static_cast<double>(state_.optimizer.set.plan().count_elements(config.model, "sophiag"));
  m.largest_logit = report.largest_logit;
  m.sequences = batch.num_sequences;
  m.tokens = batch.num_sequences * batch.seq_len;
  m.tokens_seen = state_.position.tokens_seen;
  if (names_stages_) m.stage = state_.position.phase.name;
  if (state_.position.ledger.sources.size() > 1) {
    for (const auto& [hash, source] : state_.position.ledger.sources)
      m.tokens_drawn[source.name] += source.tokens_drawn();
  }
  if (flops_.sequences != batch.num_sequences || flops_.seq_len != batch.seq_len)
    flops_ = {batch.num_sequences, batch.seq_len, count_train_flops(config.model, batch.num_sequences, batch.seq_len),
              count_executed_flops(config.model, parse_recompute(config.parallelism.recompute), batch.num_sequences,
                                   batch.seq_len)};
  m.flops = flops_.of_model;
  m.executed_flops = flops_.executed;
  if (!report.noise.empty()) {
    m.noise = estimate_noise(report.noise, batch.num_sequences);
    noise_scale_.add(*m.noise);
    m.noise_scale = noise_scale_.value();
  }
  if (!report.updates.empty()) m.updates = largest_of(report.updates);
  m.data_s = data_s;
  m.step_s = step_s;
  m.forward_s = report.forward_s;
  m.backward_s = report.backward_s;
  m.optimizer_s = report.optimizer_s;
  m.memory_bytes = resident_bytes();
  m.peak_memory_bytes = peak_resident_bytes();
  describe_routers(report.parts.routers, m.tokens, m);
  if (mesh_.group(GroupKind::kWorld).size() > 1) describe_ranks(report, m);
  // Faster than the measured peak, which was measured while the machine had other work.
  const bool measured = config.metrics.gemm_peak_tflops == 0 && mesh_.group(GroupKind::kWorld).size() == 1;
  if (measured && m.flops > gemm_peak_.flops * step_s) {
    const ops::GemmPeak again = measure_peak();
    if (again.flops > gemm_peak_.flops) gemm_peak_ = again;
  }
  m.gemm_peak_flops = gemm_peak_.flops;
  m.gemm_peak_is = gemm_peak_.is;
  return m;
}

void StepSummary::describe_ranks(const StepReport& report, StepMetrics& m) {
  m.rank_norms = report.rank_norms;
  m.forward_comm_s = report.forward_wait_s;
  m.backward_comm_s = report.backward_wait_s;
  m.reduced_in_backward = report.reduction.share();
  m.traffic = traffic_.take();
  if (warned_of_imbalance_) return;
  const auto imbalance = describe_imbalance(m, mesh_.layout(), mesh_.world().hosts());
  if (!imbalance) return;
  log::warn_on_all("step {}: {}", m.step, *imbalance);
  warned_of_imbalance_ = true;
}

}  // namespace athanor::inline metrics
