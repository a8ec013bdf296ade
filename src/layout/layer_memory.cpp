#include "layout/layer_memory.h"

#include <cmath>

namespace athanor::inline layout {
// The product x · W, for all experts together if `count` is their number.
double LayerMemory::product(double rows, double columns, double k, double factors, double count) const {
  return product_scratch({rows, columns, k, false, factors}, s_.widths(), s_.threads, count);
}

// The gradient [rows, columns] of a weight, summed over `tokens`.
double LayerMemory::sum(double rows, double columns, double tokens, double count) const {
  return product_scratch({rows, columns, tokens, true}, s_.widths(), s_.threads, count);
}

// ---- norms

void LayerMemory::norm_forward(MemoryPeak& t) {
  t.take(s_.residual() + statistics());
  if (s_.scales_layer_norm) t.take(s_.residual()), t.pulse(s_.on_device && s_.width == 2 ? 2 * s_.residual() : 0);
  left_ += statistics();
}

void LayerMemory::norm_weight_backward(MemoryPeak& t) {
  if (s_.scales_layer_norm) {
    affine_backward(t, s_.own_tokens, s_.hidden, true);
    t.give(s_.residual());  // the norm's output, which it has scaled
  }
  if (!s_.layer_norm) t.pulse(s_.residual() + s_.own_tokens / kNormRowsPerPartial * s_.hidden * 4);
}

// The gradients of the stream and of the normed tokens are added into one.
void LayerMemory::norm_backward(MemoryPeak& t) {
  norm_weight_backward(t);
  t.take(s_.residual());
  t.give(2 * s_.residual());
  t.give(s_.residual());  // the norm's input
}

// The gradients of a bias, and of a scale: partial sums over some rows, and the gradient of what was scaled. A device
// computes them from tokens in fp32.
void LayerMemory::affine_backward(MemoryPeak& t, double tokens, double columns, bool scales) {
  const double wide = 4 * tokens * columns, sums = wide / kNormRowsPerPartial;
  if (s_.on_device) {
    t.pulse(scales ? 2 * wide : 0);
  } else {
    t.pulse(scales ? tokens * columns * s_.width + 2 * sums : sums);
  }
}

// ---- attention

// Projected queries and keys stay in memory if a norm or a clip reads them. If tensor ranks share a norm, the norm is
// a separate op, and a clip reads its output.
void LayerMemory::attention_forward(MemoryPeak& t, bool keep) {
  if (s_.rank > 0) return latent_attention_forward(t, keep);
  const double both = s_.of(s_.q + s_.kv);
  const double norm_rows = s_.tokens * 4 * (s_.norm_head ? s_.heads + s_.kv_heads : s_.norm_whole ? 2 : 0);
  t.take(s_.of(s_.kv));
  t.pulse(product(s_.tokens, s_.kv, s_.hidden));
  if (s_.value_biases) t.pulse(s_.of(s_.kv));
  if (s_.clip) t.take(s_.of(s_.kv));
  if (s_.clip && !keep) t.give(s_.of(s_.kv));
  if (shares_norm()) {
    t.take(3 * both + norm_rows);
    if (!keep) t.give(both + norm_rows);
    if (!keep || !s_.clip) t.give(both);
    if (keep) left_ += norm_rows;
  } else {
    for (const double columns : {s_.q, s_.kv}) {
      t.take(s_.of(columns));
      t.pulse(product(s_.tokens, columns, s_.hidden));
      t.take(s_.of(columns));
      if (!keep || !reads_projections()) t.give(s_.of(columns));
    }
    if (keep) t.take(norm_rows), left_ += norm_rows;
  }
  const double logsumexp = s_.attention.logsumexp_bytes();
  if (s_.repeats_keys()) t.take(s_.of(2 * s_.q));
  const double mask = s_.on_device ? s_.attention.mask_bytes() : 0;
  t.take(mask);
  t.take(s_.of(s_.q) + logsumexp);
  t.pulse(2 * s_.tokens * s_.kv * s_.packed);  // keys and values
  keep ? void(left_ += logsumexp) : t.give(logsumexp);
  t.take(s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, s_.q));
  if (s_.repeats_keys()) t.give(s_.of(2 * s_.kv));
  if (!keep) t.give(s_.of(2 * s_.q + 2 * kept_keys()) + mask);
}

void LayerMemory::attention_backward(MemoryPeak& t) {
  if (s_.rank > 0) return latent_attention_backward(t);
  if (s_.biases) affine_backward(t, s_.own_tokens, s_.hidden, false);
  const auto input_gradient = [&](double columns, bool first) {
    t.pulse(sum(columns, s_.hidden, s_.tokens));
    t.take(s_.stream());
    t.pulse(product(s_.tokens, s_.hidden, columns));
    t.give(s_.of(columns));
    if (!first) t.give(s_.stream());  // they are added up
  };
  t.pulse(sum(s_.hidden, s_.q, s_.tokens));
  t.take(s_.of(s_.q));  // gradient of the heads' output
  t.pulse(product(s_.tokens, s_.q, s_.hidden));
  let_go_of_gathered(t);
  t.take(s_.of(s_.q + 2 * kept_keys()));  // gradient of q, k, v
  t.pulse(s_.attention.backward_bytes());
  const double per_head = s_.seq_len * s_.head_dim * (7 * s_.packed + 12);
  t.pulse(std::min(s_.threads, s_.kv_heads * s_.tokens / s_.seq_len) * per_head);
  t.give(s_.of(2 * s_.q + 2 * kept_keys()));  // q, k, v and the output
  t.give(s_.on_device ? s_.attention.mask_bytes() : 0);
  t.give(s_.of(s_.q));
  for (int key_or_value = 0; s_.repeats_keys() && key_or_value < 2; ++key_or_value)
    t.swap(s_.of(s_.kv), s_.of(s_.q));  // the gradients of all query heads of a key head are added
  if (shares_norm()) {
    for (const double columns : {s_.q, s_.kv}) {
      t.swap(s_.of(columns), s_.of(columns));
      if (s_.clip) t.give(s_.of(columns));
    }
    t.swap(s_.of(s_.q + s_.kv), 2 * s_.of(s_.q + s_.kv));
  }
  for (const bool of_keys : {true, false}) {
    const double columns = of_keys ? s_.kv : s_.q;
    if (!shares_norm()) t.swap(s_.of(columns), s_.of(columns));
    if (!shares_norm() && reads_projections()) t.give(s_.of(columns));
    input_gradient(columns, of_keys);
  }
  if (s_.clip) t.swap(s_.of(s_.kv), s_.of(2 * s_.kv));
  input_gradient(s_.kv, false);
}

// ---- feed-forward

void LayerMemory::gelu_forward(MemoryPeak& t, double ffn, bool keep) {
  t.take(s_.of(ffn));
  t.pulse(product(s_.tokens, ffn, s_.hidden));
  if (s_.biases && !sparse_) t.pulse(s_.of(ffn));
  t.take(s_.of(ffn));
  t.take(s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, ffn));
  if (!keep) t.give(s_.of(2 * ffn));
}

void LayerMemory::gelu_backward(MemoryPeak& t, double ffn) {
  if (s_.biases && !sparse_) affine_backward(t, s_.own_tokens, s_.hidden, false);
  t.pulse(sum(s_.hidden, ffn, s_.tokens));
  t.take(s_.of(ffn));
  t.pulse(product(s_.tokens, ffn, s_.hidden));
  t.give(s_.of(ffn));  // the activation
  if (!sparse_) let_go_of_gathered(t);
  t.swap(s_.of(ffn), s_.of(2 * ffn));  // the gradients of what the activation returned and read
  if (s_.biases && !sparse_) affine_backward(t, s_.tokens, ffn, false);
  t.pulse(sum(ffn, s_.hidden, s_.tokens));
  t.take(s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, ffn));
  t.give(s_.of(ffn));
}

void LayerMemory::swiglu_forward(MemoryPeak& t, double ffn, bool keep) {
  t.take(s_.of(3 * ffn));
  t.pulse(product(s_.tokens, ffn, s_.hidden));
  t.take(s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, ffn));
  if (!keep) t.give(s_.of(3 * ffn));
}

void LayerMemory::swiglu_backward(MemoryPeak& t, double ffn) {
  t.pulse(sum(s_.hidden, ffn, s_.tokens));
  t.swap(s_.of(ffn), s_.of(ffn));  // the activation and its gradient
  t.pulse(product(s_.tokens, ffn, s_.hidden));
  if (!sparse_) let_go_of_gathered(t);
  t.take(s_.of(2 * ffn));
  t.give(s_.of(3 * ffn));  // gate, up, and that gradient
  t.pulse(sum(ffn, s_.hidden, s_.tokens));
  t.take(s_.stream());
  t.pulse(product(s_.tokens, s_.hidden, ffn));
  t.give(s_.of(ffn));
  t.pulse(sum(ffn, s_.hidden, s_.tokens));
  t.pulse(s_.stream() + product(s_.tokens, s_.hidden, ffn));
  t.give(s_.of(ffn));
}

void LayerMemory::dense_forward(MemoryPeak& t, double ffn, bool keep) {
  s_.gated ? swiglu_forward(t, ffn, keep) : gelu_forward(t, ffn, keep);
}

void LayerMemory::dense_backward(MemoryPeak& t, double ffn) {
  s_.gated ? swiglu_backward(t, ffn) : gelu_backward(t, ffn);
}

void LayerMemory::route_forward(MemoryPeak& t, bool keep, bool decides) {
  const double scores = s_.tokens * (4 * s_.experts + 4), ids = 8 * s_.tokens * s_.choices;
  t.take(s_.of(s_.experts) + scores + (decides ? ids : 0) + ids / 2);
  if (decides) left_ += ids;
  if (!keep || !s_.sigmoid) t.give(s_.of(s_.experts));
  keep ? void(left_ += scores) : t.give(scores);
}

void LayerMemory::route_backward(MemoryPeak& t) {
  t.swap(s_.of(s_.experts), 4 * s_.tokens * s_.choices);
  if (s_.sigmoid) t.give(s_.of(s_.experts));
  t.take(s_.stream());
  t.give(s_.of(s_.experts));
  if (!s_.tensor) t.give(s_.stream());  // they are added up; with tensor ranks another op does this
}

// The map between choices and rows. On a device it has all the room for rows.
double LayerMemory::route() const {
  const double choices = choice_rows() * s_.choices;
  return 8 * (choices + (s_.on_device ? s_.rows : choices) + s_.local + 1);
}

// On a device, the maps between tokens and what is sent of them, unless all is sent to all.
double LayerMemory::hop() const {
  if (!s_.on_device || s_.allgather) return 0;
  return 8 * s_.tokens * (s_.expert_ranks + std::min(s_.expert_ranks, s_.choices));
}

// What forward keeps of gate and up, or of up alone; and backward's gradients of these, with the activation.
double LayerMemory::kept_rows() const { return s_.expert_inputs() * s_.rows * s_.width * s_.expert_ffn; }
double LayerMemory::gradient_rows() const { return (s_.expert_inputs() + 1) * s_.rows * s_.width * s_.expert_ffn; }

void LayerMemory::experts_forward(MemoryPeak& t, bool keep) {
  const double route = this->route(), rows = s_.rows * s_.width;
  const double rows_of_expert = s_.rows / s_.local;
  t.take(route + rows * s_.hidden + kept_rows());
  t.pulse(product(rows_of_expert, s_.expert_ffn, s_.hidden, 1, s_.expert_inputs() * s_.local));
  t.give(rows * s_.hidden);
  t.take(rows * s_.expert_ffn + rows * s_.hidden);
  t.pulse(product(rows_of_expert, s_.hidden, s_.expert_ffn, 1, s_.local));
  t.give(rows * s_.expert_ffn);
  t.swap(s_.dispatches ? s_.received * s_.hidden * s_.width : s_.stream(), rows * s_.hidden);
  if (!keep) t.give(route + kept_rows());
  if (keep && !s_.dispatches) left_ += route;
}

void LayerMemory::experts_backward(MemoryPeak& t) {
  const double rows = s_.rows * s_.width, weights = 4 * s_.tokens * s_.choices, each = s_.rows / s_.local;
  t.take(weights + rows * s_.hidden + gradient_rows());
  t.pulse(sum(s_.hidden, s_.expert_ffn, each, s_.local));
  t.take(rows * s_.hidden);
  t.pulse(product(each, s_.hidden, s_.expert_ffn, s_.expert_inputs(), s_.local));
  t.pulse(sum(s_.expert_ffn, s_.hidden, each, s_.expert_inputs() * s_.local));
  t.take(s_.stream());
  t.give(2 * rows * s_.hidden + gradient_rows() + kept_rows() + weights);
}

// The partial sums that come back to this rank's tokens. With allgather a host adds them up on their way; a device gets
// one from each rank for every token.
double LayerMemory::came_back() const {
  if (!s_.allgather) return s_.sent * s_.hidden * s_.width;
  return s_.on_device ? s_.received * s_.hidden * s_.width : s_.stream();
}

void LayerMemory::dispatch_forward(MemoryPeak& t, bool keep) {
  const double received = s_.received * s_.hidden * s_.width, sent = s_.allgather ? 0 : s_.sent * s_.hidden * s_.width;
  const double travelling = 8 * s_.choices * ((s_.allgather ? s_.tokens : s_.sent) + s_.received),
               choices = 12 * s_.received * s_.choices;
  t.take(hop() + travelling + s_.stream() + received + sent);
  t.swap(choices, travelling);
  t.give(sent);
  experts_forward(t, keep);
  t.pulse(came_back());  // the tokens that come back
  t.give(received);      // partial sums of this rank
  if (!keep) t.give(received + choices + hop());
}

void LayerMemory::dispatch_backward(MemoryPeak& t) {
  const double received = s_.received * s_.hidden * s_.width, sent = s_.allgather ? 0 : s_.sent * s_.hidden * s_.width;
  const double rows = s_.rows * s_.width, weights = 4 * s_.received * s_.choices,
               own_weights = 4 * s_.tokens * s_.choices;
  t.take(received + s_.stream() + weights);
  t.pulse(sent);
  t.take(rows * s_.hidden + gradient_rows());
  t.give(kept_rows());
  t.take(received);
  t.give(rows * s_.hidden);
  const double back = came_back();
  t.take(back + weights + own_weights);
  const double gathered = rows * s_.hidden * (s_.on_device ? 2 : 1);  // tokens and gradients: there both at once
  t.pulse(gathered + sum(s_.hidden, s_.expert_ffn, s_.rows / s_.local, s_.local));
  t.give(gradient_rows());
  t.give(back + received + weights);
  t.give(2 * received + weights);  // tokens and their gradients, with dweights
  t.give(12 * s_.received * s_.choices + route() + hop());
  t.give(own_weights);  // the tensors that forward kept
}

void LayerMemory::feed_forward(MemoryPeak& t, bool keep, bool decides) {
  if (!sparse_) return dense_forward(t, s_.ffn, keep);
  route_forward(t, keep, decides);
  s_.dispatches ? dispatch_forward(t, keep) : experts_forward(t, keep);
  if (s_.shared > 0) {
    dense_forward(t, s_.shared, keep);
    if (s_.shared_gate) {  // the experts' result and its gate are kept, and there is the scaled one
      const double gate = s_.of(1);
      t.take(gate);
      t.take(s_.stream());
      if (!keep) t.give(s_.stream() + gate);
    }
    t.swap(s_.stream(), 2 * s_.stream());
  }
  if (!keep) t.give(4 * s_.tokens * s_.choices);
}

void LayerMemory::feed_backward(MemoryPeak& t) {
  if (!sparse_) return dense_backward(t, s_.ffn);
  if (s_.shared > 0 && s_.shared_gate) {
    const double gate = s_.of(1);
    t.take(s_.stream() + gate);
    t.give(s_.stream() + gate);
    t.take(s_.stream());  // the gate's gradient of the input
    t.give(gate);
  }
  if (s_.shared > 0) dense_backward(t, s_.shared);
  if (s_.shared > 0 && s_.shared_gate) t.give(2 * s_.stream());
  s_.dispatches ? dispatch_backward(t) : experts_backward(t);
  t.take(4 * s_.tokens * s_.choices);  // gradient of the weights
  route_backward(t);
  if (s_.shared > 0) t.give(s_.stream());
}

// ---- the layer

// Releases the gathered gradient of a part. The last product of the part is its only reader, except in parts with
// experts and shared experts.
void LayerMemory::let_go_of_gathered(MemoryPeak& t) {
  t.give(gathered_);
  gathered_ = 0;
}

void LayerMemory::parts_forward(MemoryPeak& t, bool branch, const RecomputeKinds& again, bool keep) {
  const double all = s_.shares_tokens ? s_.stream() : 0;  // tokens of all ranks, which the matrices read
  const auto part = [&](bool computed_again, bool adds, auto forward) {
    if (adds) t.take(s_.residual());
    if (s_.norm_before) norm_forward(t);
    // A region that is computed again begins with the rank's own tokens.
    t.take(all);
    if (all > 0 && !computed_again && s_.norm_before) t.give(s_.residual());
    forward();
    if (all > 0) t.swap(s_.residual(), s_.stream());
    if (all > 0 && computed_again) t.give(all);
    if (again.norm || !keep) {
      if (all > 0 && !computed_again)
        t.give(all);
      else if (s_.norm_before)
        t.give(s_.residual());
    }
    if (s_.norm_after) norm_forward(t);
    if (s_.norm_after && !keep) t.give(s_.residual());
  };
  part(again.attention, branch, [&] { attention_forward(t, keep && !again.attention); });
  part(again.moe, true, [&] { feed_forward(t, keep && !again.moe, true); });
  t.give(s_.residual());                             // the branch of attention
  if (branch) t.give(s_.residual());                 // the branch before it
  if (branch && s_.parallel) t.give(s_.residual());  // the sum to which that was added: no norm has read it
}

void LayerMemory::forward(MemoryPeak& t, bool branch) {
  if (!again_.layer) return parts_forward(t, branch, again_, true);
  const double before = t.now(), had = left_;
  parts_forward(t, branch, {}, false);
  // The sum and the chosen experts are left.
  t.take(s_.residual());
  const double ids = sparse_ ? 8 * s_.tokens * s_.choices : 0;
  t.give(t.now() - before - s_.residual() - ids);
  left_ = had + ids;
}

void LayerMemory::parts_backward(MemoryPeak& t, const RecomputeKinds& again) {
  const double all = s_.shares_tokens ? s_.stream() : 0, read = s_.shares_tokens ? all : s_.residual();
  // A recomputed part keeps its output, and what only its own graph keeps, until it is done.
  const auto part = [&](bool computed_again, bool routes, auto forward, auto backward) {
    const double had = left_;
    double own = 0;  // the gradient of what the part returned, if that is not the stream's
    if (s_.norm_after) {
      norm_weight_backward(t);
      own = s_.residual();
      t.swap(own, s_.residual());  // the norm's input
    }
    t.take(all);  // the gradient, of all tokens
    if (all > 0) t.give(own), own = 0;
    gathered_ = all + own;
    if (again.norm && (s_.norm_before || all > 0)) t.take(computed_again ? s_.residual() : read);
    if (computed_again) t.take(all), forward();
    backward();
    if (computed_again) t.give(s_.stream() + left_ - had), left_ = had;
    let_go_of_gathered(t);
    if (all > 0) t.swap(s_.residual(), s_.stream());  // the sums go to the rank that they belong to
    if (s_.tensor && routes) t.give(s_.stream());
    t.give(read);
    if (all > 0 && computed_again) t.give(s_.residual());
  };
  const auto feed_again = [&] { feed_forward(t, true, false); };
  const auto attend_again = [&] { attention_forward(t, true); };
  const auto enter_backward = [&] {
    if (s_.norm_before) return norm_backward(t);
    t.swap(s_.residual(), 2 * s_.residual());  // the gradients of the stream and of the part are added into one
  };
  part(again.moe, sparse_, feed_again, [&] { feed_backward(t); });
  enter_backward();
  if (s_.parallel) t.take(s_.residual());  // the norm's input, which attention's norm has read, too
  part(again.attention, false, attend_again, [&] { attention_backward(t); });
  enter_backward();
}

void LayerMemory::backward(MemoryPeak& t) {
  if (!again_.layer) return parts_backward(t, again_);
  const double had = left_, ids = sparse_ ? 8 * s_.tokens * s_.choices : 0;
  parts_forward(t, false, {}, true);
  if (sparse_) t.give(ids), left_ -= ids;  // the experts are not chosen again
  t.swap(s_.residual(), s_.residual());    // the layer's output, to which its branch is added
  parts_backward(t, {});
  t.give(s_.residual() + left_ - had);
  left_ = had;
}

}  // namespace athanor::inline layout
