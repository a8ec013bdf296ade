// athanor bench overhead measures the host time of one layer, forward and backward.
//
// Two models are timed, one with one layer and one with five. A fourth of the difference is the time of a layer without
// embedding and loss. At hidden size 64 the arithmetic takes a few microseconds, so the time is that of the program
// around it.

#include <fmt/core.h>

#include "base/core_entry.h"
#include "bench/arguments.h"
#include "bench/loss_check.h"
#include "bench/overhead_ranks.h"
#include "bench/report.h"
#include "config/families.h"
#include "model/decoder.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

constexpr int64_t kFew = 1, kMany = 5;

// An OLMoE of eight experts, two for each token; bench/peers/overhead.py makes the same model.
ModelConfig tiny_model(int64_t hidden, int64_t tokens, int64_t layers) {
  ModelConfig model;
  model.family = "olmoe";
  model.hidden_size = hidden;
  model.num_hidden_layers = layers;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 4;
  model.intermediate_size = hidden / 2;
  model.num_experts = 8;
  model.num_experts_per_tok = 2;
  model.vocab_size = 64;
  model.max_position_embeddings = std::max<int64_t>(tokens, 16);
  return model;
}

class TinyModel {
 public:
  TinyModel(const ModelConfig& model, at::ScalarType dtype, int64_t tokens)
      : parameters_(make_bucket_entries(model), dtype, ParameterStore::Use::kTraining),
        decoder_(model, parameters_, {}),
        tokens_(at::randint(model.vocab_size, {1, tokens}, at::TensorOptions(at::kLong))) {
    initialize_parameters(model, 1, parameters_);
    labels_.targets = tokens_;
    labels_.loss_scale = 1.0 / static_cast<double>(tokens);
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  void step() {
    decoder_.forward(0, tokens_, &labels_);
    decoder_.backward(0, {}, nullptr);
    decoder_.take_parts(0);
  }
  std::string verify() { return verify_loss(decoder_, parameters_, tokens_); }

 private:
  ParameterStore parameters_;
  Decoder decoder_;
  Tensor tokens_;
  Labels labels_;
};

void measure(at::ScalarType dtype, const BenchOverheadArguments& given, Report& report) {
  const auto make = [&](int64_t layers) {
    return std::make_unique<TinyModel>(tiny_model(given.hidden, given.tokens, layers), dtype, given.tokens);
  };
  const auto few = make(kFew), many = make(kMany);
  const std::string verified = many->verify();
  const auto samples = measure_in_turns({simple_subject("one layer and the ends", 0, [&] { few->step(); }),
                                         simple_subject("five layers and the ends", 0, [&] { many->step(); })},
                                        given);
  std::vector<double> layer;
  for (size_t i = 0; i < samples[0].total.size(); ++i) {
    layer.push_back((samples[1].total[i] - samples[0].total[i]) / double(kMany - kFew));
  }
  const char* name = ops::type_name(dtype);
  const nlohmann::json fields{
      {"hidden", given.hidden}, {"tokens", given.tokens}, {"dtype", name}, {"threads", at::get_num_threads()}};
  report.begin(fmt::format("overhead, hidden {}, {} tokens, {}", given.hidden, given.tokens, name));
  report.add({"one layer", fields, layer, 0, {}});
  report.add({"one layer and the ends", fields, samples[0].total, 0, {}});
  report.add({"five layers and the ends", fields, samples[1].total, 0, {}});
  report.say(verified);
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_overhead) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchOverheadArguments*>(arguments);
  bench::set_up(given);
  bench::Report report;
  if (!given.config_file.empty()) {
    bench::measure_overhead_of_ranks(given, report);
    report.write(given.json);
    return 0;
  }
  ATHANOR_CHECK(given.hidden % 16 == 0, "--hidden ({}) must be a multiple of 16", given.hidden);
  ops::install_caching_cpu_allocator();
  for (const auto dtype : bench::dtypes_of(given.dtype)) bench::measure(dtype, given, report);
  report.write(given.json);
  return 0;
}
