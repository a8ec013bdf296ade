#include "moe/dispatch_local.h"

#include <cstring>
#include <utility>
#include <vector>

#include "moe/dispatch_form.h"
#include "ops/expert_rows.h"
#include "ops/played.h"

namespace athanor::moe {
namespace {

// The route of all received tokens in canonical order, with choices numbered as they arrived.
ops::ExpertRoute canonical_route(const Received& received, const Tensor& x, int64_t first, int64_t num) {
  const int64_t n = received.num_tokens(), k = received.ids_NK.size(1);
  std::vector<Tensor> ids;
  std::vector<int64_t> arrival;  // arrival number of each token in canonical order
  for (const auto& run : received.canonical) {
    ids.push_back(received.ids_NK.narrow(0, run.begin, run.count));
    for (int64_t i = 0; i < run.count; ++i) arrival.push_back(run.begin + i);
  }
  const Tensor ids_MK = ids.empty() ? received.ids_NK.narrow(0, 0, 0) : at::cat(ids);
  ops::ExpertRoute route = ops::make_expert_route(x, ids_MK, first, num, received.played_choices());
  const Tensor row_of_choice = at::full({n * k}, -1, received.ids_NK.options());
  if (ops::played("order_rows", {route.choice_of_row}, {row_of_choice})) {
    route.row_of_choice = row_of_choice;
    return route;
  }
  auto* row_of = row_of_choice.data_ptr<int64_t>();
  auto* choice_of = route.choice_of_row.data_ptr<int64_t>();
  for (int64_t r = 0; r < route.num_rows(); ++r) {
    if (choice_of[r] < 0) continue;
    choice_of[r] = arrival[static_cast<size_t>(choice_of[r] / k)] * k + choice_of[r] % k;
    row_of[choice_of[r]] = r;
  }
  route.row_of_choice = row_of_choice;
  return route;
}

// Copies rows of a chunk to their position among the rows of all chunks.
void place_rows(const Tensor& from, const ops::ExpertRoute& route, const int64_t* row_of_choice, const Tensor& to) {
  if (ops::played("place_rows", {from}, {to})) return;
  const auto bytes = static_cast<int64_t>(from.size(1)) * from.element_size();
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.data_ptr());
  ops::for_rows(route.num_rows(), from.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t choice = route.choices()[r];
      if (choice >= 0)
        std::memcpy(target + row_of_choice[choice] * bytes, source + r * bytes, static_cast<size_t>(bytes));
    }
  });
}

class OnHost : public LocalExperts {
 public:
  OnHost(const ops::ExpertWeights& experts, int64_t first, CombineWeights combine)
      : experts_(experts), first_(first), num_(experts.num_experts()),
        weigh_before_down_(combine == CombineWeights::kBeforeDown) {}

  Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep) override;
  Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK) override;
  void add_weight_gradients(const Received& received, const Tensor& x_ND, const Tensor& dy_ND) override;

 private:
  // A chunk between forward and backward; its y is released.
  struct Pass {
    ops::ExpertRoute route;
    ops::ExpertRows rows;
  };

  void collect(const Received& received, int64_t chunk, const Pass& pass, ops::ExpertRowGradients rows);

  ops::ExpertWeights experts_;
  int64_t first_, num_;
  bool weigh_before_down_;
  std::vector<Pass> passes_;
  ops::ExpertRoute all_route_;        // rows of all chunks
  ops::ExpertRowGradients all_rows_;  // likewise
};

Tensor OnHost::forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep) {
  const Tensor ids_nK = received.chunk(received.ids_NK, chunk), weights_nK = received.chunk(received.weights_NK, chunk);
  const Tensor none;
  Pass pass{ops::make_expert_route(x_nD, ids_nK, first_, num_, received.played_choices(chunk)), {}};
  pass.rows = ops::multiply_rows(ops::gather_tokens(x_nD, pass.route), weigh_before_down_ ? weights_nK : none,
                                 pass.route, experts_);
  Tensor partial_nD =
      ops::combine_rows(pass.rows.y_RD, weigh_before_down_ ? none : weights_nK, pass.route, x_nD.size(0));
  pass.rows.y_RD.reset();
  if (keep) passes_.push_back(std::move(pass));
  return partial_nD;
}

Tensor OnHost::backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK) {
  Pass& pass = passes_[static_cast<size_t>(chunk)];
  const Tensor dy_RD = ops::gather_tokens(dy_nD, pass.route);  // not weighted yet: dact and act are
  ops::ExpertRowGradients rows = ops::backward_rows(pass.rows, dy_RD, received.chunk(received.weights_NK, chunk),
                                                    pass.route, experts_, received.chunk(dweights_NK, chunk));
  pass.rows = {};
  const Tensor& dx_RD = dy_RD;  // no longer needed
  ops::input_gradients(rows, pass.route, experts_, dx_RD);
  Tensor partial_nD = ops::combine_rows(dx_RD, {}, pass.route, dy_nD.size(0));
  collect(received, chunk, pass, std::move(rows));
  return partial_nD;
}

void OnHost::collect(const Received& received, int64_t chunk, const Pass& pass, ops::ExpertRowGradients rows) {
  if (passes_.size() == 1 && received.arrived_in_order()) {
    all_route_ = pass.route;
    all_rows_ = std::move(rows);
    return;
  }
  const std::pair<Tensor*, const Tensor*> pairs[] = {
      {&all_rows_.dgate_RF, &rows.dgate_RF}, {&all_rows_.dup_RF, &rows.dup_RF}, {&all_rows_.act_RF, &rows.act_RF}};
  if (chunk == 0) {
    all_route_ = canonical_route(received, rows.act_RF, first_, num_);
    const std::vector<int64_t> shape = {all_route_.num_rows(), rows.act_RF.size(1)};
    for (const auto& [all, of_chunk] : pairs) {
      if (of_chunk->defined()) *all = at::zeros(shape, of_chunk->options());  // padding stays zero
    }
  }
  const int64_t* row_of_choice = all_route_.rows() + received.chunk_begin[static_cast<size_t>(chunk)] * all_route_.k;
  for (const auto& [all, of_chunk] : pairs)
    if (of_chunk->defined()) place_rows(*of_chunk, pass.route, row_of_choice, *all);
}

void OnHost::add_weight_gradients(const Received& received, const Tensor& x_ND, const Tensor& dy_ND) {
  ops::add_down_gradients(all_rows_, ops::gather_tokens(dy_ND, all_route_), received.weights_NK, all_route_, experts_);
  ops::add_gate_up_gradients(all_rows_, ops::gather_tokens(x_ND, all_route_), all_route_, experts_);
  all_rows_ = {};
}

}  // namespace

std::unique_ptr<LocalExperts> HostForm::local_experts(const ops::ExpertWeights& experts, int64_t first,
                                                      CombineWeights combine) const {
  return std::make_unique<OnHost>(experts, first, combine);
}

}  // namespace athanor::moe
