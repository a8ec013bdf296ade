// The path of generation through the decoder: new tokens of several texts, whose earlier keys and values are in caches.

#include <numeric>

#include "model/decoder.h"
#include "ops/document_tables.h"
#include "ops/transfer.h"
#include "parallel/vocabulary.h"

namespace athanor::inline model {
namespace {

// One number for each token: of the text that it belongs to, from which it may count on.
template <class F>
void for_each_token(const NewTokens& tokens, F f) {
  int64_t n = 0;
  for (size_t r = 0; r < tokens.slots.size(); ++r) {
    for (int64_t i = 0; i < tokens.lengths[r]; ++i) f(n++, r, i);
  }
}

// Rows of numbers that are sent together: ids (if the stage embeds), slots, positions, and the texts' last tokens.
struct TokenNumbers {
  Tensor ids, slots, positions, last;
};

int64_t num_tokens(const NewTokens& tokens) {
  return std::accumulate(tokens.lengths.begin(), tokens.lengths.end(), int64_t{0});
}

TokenNumbers numbers_on(at::Device device, const NewTokens& tokens, const Tensor& ids) {
  const int64_t count = num_tokens(tokens), texts = tokens.num_texts();
  Tensor here = at::empty({3 * count + texts}, at::kLong);
  auto* number = here.data_ptr<int64_t>();
  if (ids.defined()) here.narrow(0, 0, count).copy_(ids.reshape({-1}));
  for_each_token(tokens, [&](int64_t n, size_t r, int64_t i) {
    if (!ids.defined()) number[n] = 0;
    number[count + n] = tokens.slots[r];
    number[2 * count + n] = tokens.past[r] + i;
    number[3 * count + static_cast<int64_t>(r)] = n;  // at last the last one
  });
  const Tensor there = ops::send(here, device);
  return {there.narrow(0, 0, count), there.narrow(0, count, count), there.narrow(0, 2 * count, count),
          there.narrow(0, 3 * count, texts)};
}

Tensor positions_of_tokens(const NewTokens& tokens) {
  Tensor positions = at::empty({1, num_tokens(tokens)}, at::kLong);
  auto* position = positions.data_ptr<int64_t>();
  for_each_token(tokens, [&](int64_t n, size_t r, int64_t i) { position[n] = tokens.past[r] + i; });
  return positions;
}

void check_tokens(const NewTokens& tokens) {
  ATHANOR_ASSERT(tokens.lengths.size() == tokens.slots.size() && tokens.past.size() == tokens.slots.size());
  for (size_t r = 0; r < tokens.slots.size(); ++r) {
    ATHANOR_ASSERT(tokens.lengths[r] > 0 && (tokens.past[r] == 0) == tokens.begin_texts());
    ATHANOR_ASSERT(tokens.begin_texts() || (tokens.lengths[r] == 1 && tokens.slots[r] == static_cast<int64_t>(r)));
  }
}

}  // namespace

Residual Layer::forward_cached(const Residual& in, const CachedPass& pass, const KvCache& cache) const {
  constexpr int64_t kBatch = 1;
  const ops::NormedSum before = read_stream(attention_norm_, in);
  const TensorParallelInput x = enter_tensor_parallel(before.normed, ranks_, kBatch);
  const Tensor attended =
      attention_.add_bias(leave_tensor_parallel(attention_.forward_cached(x.partitioned, pass, cache), ranks_));
  const Between next = between(before.sum, branch_of(attention_out_norm_, attended));
  const TensorParallelInput y = enter_tensor_parallel(next.in.normed, ranks_, kBatch);
  return {next.last_sum, branch_of(feed_forward_out_norm_, leave_feed_forward(feed_forward(y, nullptr)))};
}

std::vector<KvCache> Decoder::make_caches(int64_t slots, int64_t capacity) const {
  std::vector<KvCache> caches;
  for (const Layer& layer : layers_) caches.push_back(layer.make_cache(slots, capacity));
  return caches;
}

// Copies to a device: whole numbers, and for each table of angles those of the positions.
CachedPass Decoder::cached_pass(const NewTokens& tokens, const Tensor& x, Tensor& ids_N) const {
  check_tokens(tokens);
  const TokenNumbers numbers = numbers_on(device_, tokens, stage_.embeds ? x : Tensor());
  ids_N = numbers.ids;
  CachedPass pass;
  pass.slots_N = numbers.slots, pass.positions_N = numbers.positions;
  pass.rotations = rotations_.of([&](auto& tables) { return tables.of_positions(positions_of_tokens(tokens)); });
  if (!tokens.begin_texts()) {
    for (const int64_t past : tokens.past) pass.counts.of_row.push_back(past + 1);
    if (model_.sliding_window > 0) {
      pass.counts_in_window = {.of_row = pass.counts.of_row, .window = model_.sliding_window};
      pass.counts_in_window = ops::with_keys_seen(pass.counts_in_window, numbers.positions);
    }
    pass.counts = ops::with_keys_seen(pass.counts, numbers.positions);
    return pass;
  }
  pass.last_R = numbers.last;
  std::vector<int32_t> lengths;
  for (const int64_t length : tokens.lengths) lengths.push_back(static_cast<int32_t>(length));
  pass.documents = {lengths};
  pass.documents = ops::with_tables(pass.documents, num_tokens(tokens), device_);
  return pass;
}

Tensor Decoder::cached_logits(const Residual& residual, const CachedPass& pass) const {
  Tensor last = residual.sum()[0];
  if (pass.last_R.defined()) last = last.index_select(0, pass.last_R);
  return vocabulary_logits(final_norm_.of(last), output_, model_.vocab_size, options_.tensor, output_cap_);
}

Tensor Decoder::forward_cached(const Tensor& x, const NewTokens& tokens, const std::vector<KvCache>& caches) const {
  const at::NoGradGuard no_grad;
  ATHANOR_ASSERT(!options_.tensor.shares_tokens() && caches.size() == layers_.size());
  Tensor ids_N;
  const CachedPass pass = cached_pass(tokens, x, ids_N);
  Residual residual{stage_.embeds ? embed(ids_N.unsqueeze(0), pass.positions_N) : x, {}};
  for (size_t l = 0; l < layers_.size(); ++l) {
    enter(1 + stage_.first + static_cast<int64_t>(l), residual);
    residual = layers_[l].forward_cached(residual, pass, caches[l]);
  }
  if (stage_.has_head) enter(1 + stage_.end, residual);
  return stage_.has_head ? cached_logits(residual, pass) : residual.sum();
}

}  // namespace athanor::inline model
