#include "eval/score.h"

#include <algorithm>
#include <cmath>

#include "base/library_bits.h"
#include "base/thread_share.h"
#include "eval/loaded_model.h"
#include "eval/text_beginning.h"
#include "ops/device_choice.h"
#include "ops/tensor.h"
#include "ops/transfer.h"

namespace athanor::inline eval {
namespace {

Tensor row_of(std::span<const int64_t> ids) {
  return at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong).unsqueeze(0);
}

// The scores of ids[1], ids[2], …, each given those before it.
void append_scores(Decoder& decoder, at::Device device, std::span<const int64_t> ids, std::vector<TokenScore>& out) {
  Labels labels;
  labels.targets = row_of(ids.subspan(1));
  labels.targets = ops::send(labels.targets, device);
  const TokenScores scores = decoder.score(ops::send(row_of(ids.first(ids.size() - 1)), device), &labels);
  const Tensor log_probability = ops::fetch(scores.log_probability.to(at::kFloat).contiguous());
  const Tensor is_greedy = ops::fetch(scores.is_greedy.contiguous());
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    out.push_back({static_cast<uint32_t>(ids[i + 1]), log_probability.const_data_ptr<float>()[i],
                   is_greedy.const_data_ptr<bool>()[i]});
  }
}

}  // namespace

double TextScore::log_probability() const {
  double sum = 0;
  for (const TokenScore& token : tokens) sum += token.log_probability;
  return sum;
}

double TextScore::bits_per_byte() const {
  return num_bytes == 0 ? 0 : -log_probability() / std::log(2.0) / static_cast<double>(num_bytes);
}

struct TextScorer::Model {
  LoadedModel loaded;
  int threads;
  std::vector<uint32_t> before;  // tokens that precede each text
};

TextScorer::TextScorer(const std::filesystem::path& model, const ScoringOptions& options) {
  ATHANOR_CHECK(options.chunk_tokens > 0, "chunk_tokens is {}; it must be positive", options.chunk_tokens);
  const at::ScalarType type = ops::scalar_type(number_type(options.dtype, "dtype"));
  ask_for_reproducible_library();
  const at::Device device = ops::choose_device(options.device, {}, "ScoringOptions::device");
  const int threads = options.threads > 0 ? options.threads : share_threads(find_thread_limits()).threads;
  model_ = std::make_unique<Model>(Model{load_model(model, {type, options.chunk_tokens, device}), threads, {}});
  model_->before = beginning_of_texts(model_->loaded).around.before;
  if (model_->before.empty() && model_->loaded.eos_id) model_->before.push_back(*model_->loaded.eos_id);
}

TextScorer::~TextScorer() = default;
TextScorer::TextScorer(TextScorer&&) noexcept = default;
TextScorer& TextScorer::operator=(TextScorer&&) noexcept = default;

TextScore TextScorer::score(std::string_view utf8) {
  const LoadedModel& model = model_->loaded;
  std::vector<int64_t> ids(model_->before.begin(), model_->before.end());
  const size_t num_before = ids.size();
  for (const uint32_t id : model.tokenizer->encode(utf8)) ids.push_back(id);
  TextScore result;
  result.num_bytes = static_cast<int64_t>(utf8.size());
  if (num_before == 0 && !ids.empty()) {  // nothing precedes the first token, so it has no score
    const std::vector<uint32_t> first = {static_cast<uint32_t>(ids.front())};
    result.num_bytes = std::max<int64_t>(0, result.num_bytes - std::ssize(model.tokenizer->decode(first)));
  }
  at::set_num_threads(model_->threads);
  const auto positions = static_cast<size_t>(model.config.text_positions());
  for (size_t first = 0; first + 1 < ids.size(); first += positions) {
    const size_t count = std::min(positions + 1, ids.size() - first);
    append_scores(model.decoder(), model.state->parameters.compute().device(), std::span(ids).subspan(first, count),
                  result.tokens);
  }
  if (num_before > 1)
    result.tokens.erase(result.tokens.begin(), result.tokens.begin() + std::ssize(model_->before) - 1);
  return result;
}

const Tokenizer& TextScorer::tokenizer() const { return *model_->loaded.tokenizer; }

}  // namespace athanor::inline eval
