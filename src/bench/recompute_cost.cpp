#include "bench/recompute_cost.h"

#include <fmt/core.h>

#include <memory>

#include "arch/flops.h"
#include "base/text.h"
#include "ops/cpu_allocator.h"
#include "train/microbatch.h"

namespace athanor::bench {
namespace {

class Variant {
 public:
  Variant(const TrainState& state, const Batch& batch, const std::string& kind)
      : kind_(kind), microbatches_(split_batch(batch, state.config, state.data.eos_id)) {
    DecoderOptions options;
    options.loss_chunk_tokens = state.config.train.loss_chunk_tokens;
    if (!kind.empty()) options.recompute = parse_recompute({kind});
    decoder_ = std::make_unique<Decoder>(state.config.model, state.model.parameters, options);
  }

  std::string name() const { return kind_.empty() ? "nothing recomputed" : "recompute " + kind_; }

  Subject subject(double flops) {
    return simple_subject(name(), flops, [this] { run(); });
  }

  // The largest number of bytes that tensors used beyond those used before.
  double peak_bytes() {
    run();  // memory that is taken once and kept is taken here
    const auto before = cpu_memory_in_use();
    ops::reset_peak_cpu_memory();
    run();
    return static_cast<double>(ops::cpu_memory().peak_in_use_bytes) - before;
  }

 private:
  static double cpu_memory_in_use() { return static_cast<double>(ops::cpu_memory().in_use_bytes); }

  void run() {
    int index = 0;
    for (const Microbatch& microbatch : microbatches_) {
      decoder_->forward(index, microbatch.tokens, &microbatch.labels);
      decoder_->backward(index, {}, nullptr);
      decoder_->take_parts(index++);
    }
  }

  std::string kind_;
  std::vector<Microbatch> microbatches_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace

void report_recompute(TrainState& state, const Batch& batch, const BenchArguments& given, const nlohmann::json& fields,
                      const Limit& limit, Report& report) {
  std::vector<std::unique_ptr<Variant>> variants;
  std::vector<Subject> subjects;
  std::vector<double> bytes;
  const double flops = count_train_flops(state.config.model, batch.num_sequences, batch.seq_len);
  for (const char* kind : {"", "norm", "attention", "moe", "layer"}) {
    variants.push_back(std::make_unique<Variant>(state, batch, kind));
    bytes.push_back(variants.back()->peak_bytes());
    subjects.push_back(variants.back()->subject(flops));
  }
  const auto samples = measure_in_turns(subjects, given);
  state.model.parameters.grad().zero_();
  report.begin("forward and backward of a batch, and what recomputation saves of it");
  for (size_t i = 0; i < subjects.size(); ++i) {
    const double saved = bytes[0] - bytes[i], paid = median(samples[i].total) / median(samples[0].total) - 1;
    nlohmann::json own = fields;
    own["activation_bytes"] = bytes[i];
    own["saved_bytes"] = saved;
    own["time_paid"] = paid;
    const std::string held = format_bytes(bytes[i]) + " held";
    report.add(
        subjects[i], samples[i], own, limit,
        i == 0 ? held : fmt::format("{}: {:.0f}% saved, {:+.1f}% time", held, 100 * saved / bytes[0], 100 * paid));
  }
}

}  // namespace athanor::bench
