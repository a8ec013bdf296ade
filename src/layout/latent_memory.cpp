// The part of LayerMemory that is attention with latents (blocks/attention.cpp: project_latents).

#include <algorithm>

#include "layout/layer_memory.h"

namespace athanor::inline layout {

// A projection, and its norm.
void LayerMemory::latent_forward(MemoryPeak& t, double rank) {
  t.take(s_.of(rank));
  t.pulse(product(s_.tokens, rank, s_.hidden));
  t.take(s_.of(rank) + 4 * s_.tokens);
}

// The gradient of the norm's output is on the tape, and becomes one of the tokens.
void LayerMemory::latent_backward(MemoryPeak& t, double rank) {
  t.give(s_.of(rank));  // the norm's output
  t.pulse(s_.of(rank) + s_.tokens / kNormRowsPerPartial * rank * 4);
  t.swap(s_.of(rank), s_.of(2 * rank));  // in place of its input and of that gradient the gradient of its input
  t.pulse(sum(rank, s_.hidden, s_.tokens));
  t.pulse(s_.stream() + product(s_.tokens, s_.hidden, rank));
  t.give(s_.of(rank));
}

void LayerMemory::latent_attention_forward(MemoryPeak& t, bool keep) {
  const double statistics = 4 * s_.tokens * (s_.query_rank > 0 ? 2 : 1), logsumexp = s_.attention.logsumexp_bytes();
  const auto turn = [&] {
    t.pulse(s_.of(s_.queries));
    if (s_.widens_queries()) t.pulse(s_.of(s_.q)), t.swap(s_.of(s_.q), s_.of(s_.queries));
  };
  latent_forward(t, s_.rank);
  t.take(s_.of(s_.own_keys + s_.shared_key));
  t.pulse(product(s_.tokens, s_.own_keys, s_.rank));
  t.take(s_.of(s_.queries));  // keys
  t.give(s_.of(s_.own_keys + s_.shared_key));
  turn();
  t.take(s_.of(s_.values));
  t.pulse(product(s_.tokens, s_.values, s_.rank));
  if (s_.widens_values()) t.swap(s_.of(s_.q), s_.of(s_.values));
  if (s_.query_rank > 0) latent_forward(t, s_.query_rank);
  t.take(s_.of(s_.queries));
  t.pulse(product(s_.tokens, s_.queries, s_.query_rank > 0 ? s_.query_rank : s_.hidden));
  turn();
  const double mask = s_.on_device ? s_.attention.mask_bytes() : 0;
  t.take(mask + s_.of(s_.q) + logsumexp);
  t.pulse(2 * s_.tokens * s_.q * s_.packed);
  const double copy = s_.widens_values() ? s_.of(s_.values) : 0;
  t.take(copy + s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, s_.values));
  if (keep) return void(left_ += logsumexp + statistics);
  t.give(logsumexp + statistics + copy + mask + s_.of(4 * s_.q + 2 * (s_.rank + s_.query_rank)));
}

void LayerMemory::latent_attention_backward(MemoryPeak& t) {
  t.pulse(sum(s_.hidden, s_.values, s_.tokens));
  t.take(s_.of(s_.values));
  t.pulse(product(s_.tokens, s_.values, s_.hidden));
  let_go_of_gathered(t);
  if (s_.widens_values()) t.give(s_.of(s_.values)), t.swap(s_.of(s_.q), s_.of(s_.values));
  t.take(s_.of(3 * s_.q));  // gradient of q, k, v
  t.pulse(s_.attention.backward_bytes());
  const double per_head = s_.seq_len * s_.q / s_.heads * (7 * s_.packed + 12);
  t.pulse(std::min(s_.threads, s_.heads * s_.tokens / s_.seq_len) * per_head);
  t.give(s_.of(5 * s_.q));  // q, k, v, the output and its gradient
  t.give(s_.on_device ? s_.attention.mask_bytes() : 0);
  if (s_.widens_queries()) t.swap(s_.of(s_.queries), s_.of(s_.q));
  t.pulse(s_.of(s_.queries));
  const double read = s_.query_rank > 0 ? s_.query_rank : s_.hidden;
  t.pulse(sum(s_.queries, read, s_.tokens));
  t.take(s_.of(read));
  t.pulse(product(s_.tokens, read, s_.queries));
  t.give(s_.of(s_.queries));
  if (s_.query_rank > 0) {
    latent_backward(t, s_.query_rank);
    t.take(s_.stream());
  }
  if (s_.widens_values()) t.swap(s_.of(s_.values), s_.of(s_.q));
  t.pulse(sum(s_.values, s_.rank, s_.tokens));
  t.take(s_.of(s_.rank));
  t.pulse(product(s_.tokens, s_.rank, s_.values));
  t.give(s_.of(s_.values));
  if (s_.widens_queries()) t.swap(s_.of(s_.queries), s_.of(s_.q));
  t.pulse(s_.of(s_.queries));
  t.take(s_.of(s_.own_keys + s_.shared_key));  // the gradients of the parts of keys
  t.pulse(s_.of(2 * s_.own_keys));
  t.give(s_.of(s_.queries));
  t.pulse(sum(s_.own_keys, s_.rank, s_.tokens));
  t.pulse(s_.of(s_.rank) + product(s_.tokens, s_.rank, s_.own_keys));
  t.give(s_.of(s_.own_keys));
  t.pulse(s_.stream() + product(s_.tokens, s_.hidden, s_.shared_key));
  t.give(s_.of(s_.shared_key));
  latent_backward(t, s_.rank);
}

}  // namespace athanor::inline layout
