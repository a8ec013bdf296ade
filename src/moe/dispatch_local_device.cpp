// The computation of a rank on a device. Which tokens chose which expert stays there: routes and rows have memory for
// the most that there can be (ops/device/expert_rows.h).

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "moe/dispatch_form.h"
#include "ops/device/expert_rows.h"
#include "ops/device/on_stream.h"
#include "ops/device/portable_op.h"

namespace athanor::moe {
namespace {

using ops::device::data;
using ops::device::OnStream;
using ops::device::RowRoute;

int64_t num_of(const ops::ExpertWeights& experts) { return experts.num_experts(); }

// With our kernels.
class OnDevice : public LocalExperts {
 public:
  OnDevice(const ops::ExpertWeights& experts, int64_t first, CombineWeights combine)
      : experts_(experts), first_(first), weigh_before_down_(combine == CombineWeights::kBeforeDown) {}

  Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep) override {
    const Tensor ids_nK = received.chunk(received.ids_NK, chunk),
                 weights_nK = received.chunk(received.weights_NK, chunk), none;
    const RowRoute route = ops::device::make_row_route(ids_nK, first_, num_of(experts_), most_choices(received, chunk));
    ops::ExpertRows rows = ops::device::multiply_rows(ops::device::gather_rows(x_nD, route),
                                                      weigh_before_down_ ? weights_nK : none, route, experts_);
    const Tensor partial_nD =
        ops::device::combine_rows(rows.y_RD, none, weigh_before_down_ ? none : weights_nK, route, x_nD.size(0));
    rows.y_RD.reset();
    if (keep) passes_.push_back({route, std::move(rows)});
    return partial_nD;
  }

  Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK) override {
    Pass& pass = passes_[static_cast<size_t>(chunk)];
    ops::ExpertRowGradients rows = ops::device::backward_rows(pass.rows, ops::device::gather_rows(dy_nD, pass.route),
                                                              received.chunk(received.weights_NK, chunk), pass.route,
                                                              experts_, received.chunk(dweights_NK, chunk));
    pass.rows = {};
    const Tensor partial_nD = ops::device::input_gradients(rows, pass.route, experts_, dy_nD.size(0));
    collect(received, chunk, pass.route, std::move(rows));
    return partial_nD;
  }

  void add_weight_gradients(const Received& received, const Tensor& x_ND, const Tensor& dy_ND) override {
    const RowRoute& route = *all_route_;
    ops::device::add_weight_gradients(all_rows_, ops::device::gather_rows(x_ND, route),
                                      ops::device::gather_rows(dy_ND, route), received.weights_NK, route, experts_);
    all_rows_ = {};
    all_route_.reset();
  }

 private:
  // A chunk between forward and backward; its y is released.
  struct Pass {
    RowRoute route;
    ops::ExpertRows rows;
  };

  // A token chooses no expert twice.
  int64_t most_of(int64_t tokens, const Received& received) const {
    return tokens * std::min(received.ids_NK.size(1), num_of(experts_));
  }
  int64_t most_choices(const Received& received, int64_t chunk) const {
    if (!received.most_choices.empty()) return received.most_choices[static_cast<size_t>(chunk)];
    return most_of(
        received.chunk_begin[static_cast<size_t>(chunk) + 1] - received.chunk_begin[static_cast<size_t>(chunk)],
        received);
  }

  // The route of the tokens of all chunks in canonical order, with choices numbered as they arrived.
  RowRoute canonical_route(const Received& received) const {
    int64_t most = most_of(received.num_tokens(), received);
    if (!received.most_choices.empty()) {
      most = 0;
      for (const int64_t each : received.most_choices) most += each;
    }
    if (!received.arrival_N.defined())
      return ops::device::make_row_route(received.ids_NK, first_, num_of(experts_), most);
    const Tensor ids_MK = received.ids_NK.index_select(0, received.arrival_N);
    RowRoute route = ops::device::make_row_route(ids_MK, first_, num_of(experts_), most);
    route.row_of_choice = at::empty({received.ids_NK.numel()}, received.ids_NK.options());
    kernels::cuda::renumber_choices(OnStream(ids_MK), route.rows(), data<int64_t>(received.arrival_N), route.k,
                                    data<int64_t>(route.choice_of_row), data<int64_t>(route.row_of_choice));
    return route;
  }

  // Copies rows of a chunk to their places among the rows of all chunks.
  void place(const Tensor& from, const RowRoute& route, const Tensor& row_of_choice, const Tensor& to) const {
    ops::with_element(from, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      kernels::cuda::place_rows<T>(OnStream(from), data<T>(from), route.rows(), data<int64_t>(row_of_choice),
                                   data<T>(to), from.size(1));
    });
  }

  void collect(const Received& received, int64_t chunk, const RowRoute& route, ops::ExpertRowGradients rows) {
    if (passes_.size() == 1 && !received.arrival_N.defined()) {
      all_route_ = route;
      all_rows_ = std::move(rows);
      return;
    }
    const std::pair<Tensor*, const Tensor*> pairs[] = {
        {&all_rows_.dgate_RF, &rows.dgate_RF}, {&all_rows_.dup_RF, &rows.dup_RF}, {&all_rows_.act_RF, &rows.act_RF}};
    if (chunk == 0) {
      all_route_ = canonical_route(received);
      const std::vector<int64_t> shape = {all_route_->most_rows(), rows.act_RF.size(1)};
      for (const auto& [all, of_chunk] : pairs)
        if (of_chunk->defined()) *all = at::zeros(shape, of_chunk->options());  // padding stays zero
    }
    const Tensor row_of_choice = received.chunk(all_route_->row_of_choice.view(received.ids_NK.sizes()), chunk);
    for (const auto& [all, of_chunk] : pairs)
      if (of_chunk->defined()) place(*of_chunk, route, row_of_choice, *all);
  }

  ops::ExpertWeights experts_;
  int64_t first_;
  bool weigh_before_down_;
  std::vector<Pass> passes_;
  std::optional<RowRoute> all_route_;  // rows of all chunks
  ops::ExpertRowGradients all_rows_;   // likewise
};

// Without kernels, in torch ops. Gradients are computed from the tokens again; those of the weights over all tokens at
// once, in canonical order. The weights are multiplied in after the down projection, which changes only rounding.
class WithoutKernels : public LocalExperts {
 public:
  WithoutKernels(const ops::ExpertWeights& experts, int64_t first) : experts_(experts), first_(first) {}

  Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep) override {
    if (keep) chunks_.push_back(x_nD);
    return run(x_nD, received.chunk(received.weights_NK, chunk), received.chunk(received.ids_NK, chunk), values());
  }

  Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK) override {
    const Tensor x = leaf(chunks_[static_cast<size_t>(chunk)]),
                 weights = leaf(received.chunk(received.weights_NK, chunk));
    const at::AutoGradMode with_gradients(true);
    const Tensor y = run(x, weights, received.chunk(received.ids_NK, chunk), values());
    const auto grads = torch::autograd::grad({y}, {x, weights}, {dy_nD});
    received.chunk(dweights_NK, chunk).copy_(grads[1]);
    return grads[0];
  }

  void add_weight_gradients(const Received& received, const Tensor& x_ND, const Tensor& dy_ND) override {
    const auto in_order = [&](const Tensor& all) {
      return received.arrival_N.defined() ? all.index_select(0, received.arrival_N) : all;
    };
    std::vector<Tensor> leaves;  // as fp32, so that their gradients are not rounded before they are added
    for (const Tensor& value : values()) leaves.push_back(leaf(value.to(at::kFloat)));
    const at::AutoGradMode with_gradients(true);
    const Tensor y = run(in_order(x_ND), in_order(received.weights_NK), in_order(received.ids_NK), leaves);
    const auto grads = torch::autograd::grad({y}, leaves, {in_order(dy_ND)});
    const at::NoGradGuard no_grad;
    const auto weights = experts_.all();
    for (size_t i = 0; i < grads.size(); ++i) weights[i].grad.add_(grads[i]);
    chunks_.clear();
  }

 private:
  static Tensor leaf(const Tensor& x) { return x.detach().requires_grad_(); }
  std::vector<Tensor> values() const {
    std::vector<Tensor> values;
    for (const Weight& weight : experts_.all()) values.push_back(weight.value);
    return values;
  }
  Tensor run(const Tensor& x, const Tensor& weights, const Tensor& ids, const std::vector<Tensor>& w) const {
    std::vector<Tensor> typed;
    for (const Tensor& value : w) typed.push_back(value.to(x.scalar_type()));
    return ops::portable::experts(x, weights, ids, experts_.with_values(typed), first_, num_of(experts_));
  }

  ops::ExpertWeights experts_;
  int64_t first_;
  std::vector<Tensor> chunks_;  // tokens, between forward and backward
};

}  // namespace

std::unique_ptr<LocalExperts> DeviceForm::local_experts(const ops::ExpertWeights& experts, int64_t first,
                                                        CombineWeights combine) const {
  return std::make_unique<OnDevice>(experts, first, combine);
}

std::unique_ptr<LocalExperts> PortableForm::local_experts(const ops::ExpertWeights& experts, int64_t first,
                                                          CombineWeights /*combine*/) const {
  return std::make_unique<WithoutKernels>(experts, first);
}

}  // namespace athanor::moe
