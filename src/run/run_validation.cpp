#include "run/run_validation.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "run/validation.h"

namespace athanor::inline run {

std::optional<RunValidation::NotFinite> RunValidation::validate(const StageData& data, StepMetrics& metrics) {
  const auto& sources = data.validation;
  if (sources.empty()) return std::nullopt;
  const auto sequences = static_cast<double>(state_.config.train.validation_sequences);
  double loss = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& [name, share, dataset] = sources[i];
    const std::string source = sources.size() > 1 ? name : "";
    const double source_loss =
        validation_loss(state_.model, dataset, std::max<int64_t>(1, std::llround(share * sequences)), state_.config,
                        state_.data.eos_id);
    if (i == unigram_entropies_.size())
      unigram_entropies_.push_back(
          unigram_entropy(dataset, mesh_, [this](int64_t num_bytes) { mesh_.world().note_work(num_bytes); }));
    if (!std::isfinite(source_loss)) return NotFinite{source_loss, source};
    log::info("step {}: validation loss {:.4f}{} (unigram entropy of the same split: {:.4f})", metrics.step,
              source_loss, source.empty() ? "" : " of " + name, unigram_entropies_[i]);
    if (!source.empty()) metrics.validation_losses[name] = source_loss;
    loss += share * source_loss;
  }
  metrics.validation_loss = loss;
  if (sources.size() > 1) log::info("step {}: validation loss {:.4f} of the mix", metrics.step, loss);
  return std::nullopt;
}

}  // namespace athanor::inline run
