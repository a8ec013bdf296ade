#include "bench/moe_block.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/place.h"
#include "bench/verify.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

Tensor normal(at::IntArrayRef shape, double deviation, uint64_t seed, at::ScalarType dtype) {
  // Draws in the type itself: the weights of 64 large experts are too large to be stored twice.
  return at::empty(shape, dtype).normal_(0, deviation, at::detail::createCPUGenerator(seed));
}

Weight weight(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype, at::Device device) {
  constexpr double kDeviation = 0.02;  // the initializer_range of these families
  return {sent(normal(shape, kDeviation, seed, dtype), device),
          at::zeros(shape, at::TensorOptions(at::kFloat).device(device))};
}

Weight on_host(const Weight& weight) { return {sent(weight.value, at::kCPU), sent(weight.grad, at::kCPU)}; }

}  // namespace

std::string MoeShape::name() const {
  return fmt::format("moe {}x{} ffn {} experts {} top-{} {}", tokens, hidden, ffn, experts, topk,
                     ops::type_name(dtype));
}

double memory_bytes(const MoeShape& s) {
  const double size = s.dtype == at::kFloat ? 4 : 2;
  const double weights = double(s.form.num_matrices()) * double(s.experts) * double(s.hidden) * double(s.ffn);
  const double rows = double(s.tokens) * double(s.topk);
  return weights * (2 * size + 4) + rows * size * (3 * double(s.hidden) + 6 * double(s.ffn));
}

MoeBlock::MoeBlock(const MoeShape& s, bool uniform, at::Device device)
    : shape_(s), uniform_(uniform), x_TD_(sent(normal({s.tokens, s.hidden}, 1, 1, s.dtype), device).requires_grad_()),
      dy_TD_(sent(normal({s.tokens, s.hidden}, 1, 2, s.dtype), device)),
      router_ED_(weight({s.experts, s.hidden}, 3, s.dtype, device)),
      experts_(ops::make_experts(
          s.form, s.experts, s.ffn, s.hidden,
          [&, seed = uint64_t{4}](at::IntArrayRef shape) mutable { return weight(shape, seed++, s.dtype, device); })),
      uniform_ids_TK_(
          sent(at::arange(s.tokens * s.topk, at::kLong).remainder(s.experts).view({s.tokens, s.topk}), device)) {}

MoeBlock MoeBlock::on_host() const {
  MoeBlock here = *this;
  for (Tensor* each : {&here.x_TD_, &here.dy_TD_, &here.uniform_ids_TK_}) *each = sent(*each, at::kCPU);
  here.router_ED_ = bench::on_host(router_ED_);
  here.experts_ = {bench::on_host(experts_.gate_LFD), bench::on_host(experts_.up_LFD),
                   bench::on_host(experts_.down_LDF)};
  return here;
}

moe::Routing MoeBlock::route(const Tensor& x_TD) const {
  moe::Routing routing = moe::route(x_TD, router_ED_, {.k = shape_.topk}, 1);
  if (uniform_) routing.expert_ids_TK = uniform_ids_TK_;
  return routing;
}

Tensor MoeBlock::forward(const Tensor& x_TD, const moe::Routing& routing) const {
  return ops::experts(x_TD, routing.weights_TK, routing.expert_ids_TK, experts_, 0, shape_.experts);
}

Subject MoeBlock::subject() const {
  const double router = shape_.router_flops(), experts = shape_.expert_flops();
  Subject subject{"moe", {{"router", router}, {"experts", experts}, {"backward", 2 * (router + experts)}}, {}};
  subject.call = [this](Laps& laps) {
    Tensor x = x_TD_;
    x.mutable_grad() = Tensor();
    const auto routing = route(x);
    laps.end(0);
    const Tensor y = forward(x, routing);
    laps.end(1);
    torch::autograd::backward({y}, {dy_TD_});
    laps.end(2);
  };
  return subject;
}

double MoeBlock::max_over_mean() const {
  const at::NoGradGuard no_grad;
  const Tensor ids = sent(route(x_TD_).expert_ids_TK, at::kCPU);
  const Tensor counts = at::bincount(ids.reshape({-1}), {}, shape_.experts).to(at::kDouble);
  return counts.max().item<double>() / counts.mean().item<double>();
}

// One forward and backward of the experts alone; the checks below look at its results.
struct MoeBlock::Sample {
  Tensor ids_TK, weights_TK, y_TD, dx_TD, dweights_TK;
  Tensor tokens;   // indices of the tokens that are checked
  Tensor columns;  // indices of the intermediate dim, checked in weight gradients
};

// The pass of some tokens through one expert, for all or some of the intermediate columns.
namespace {

using namespace ops::test;

struct ExpertPass {
  Tracked gate, up, act;     // stored pre-activations and activation
  Tracked dact, dgate, dup;  // all [rows, columns]
  Tracked weighted;          // weight · act
};

// @param w_R1  the routing weights. wg, wu [columns, D], wd [D, columns] in fp64.
ExpertPass pass_expert(const Tracked& x, const Tracked& dy, const Tensor& w_R1, const Tensor& wg, const Tensor& wu,
                       const Tensor& wd, at::ScalarType dtype) {
  const Tracked one = exact(1.0), w = exact(w_R1);
  ExpertPass p;
  p.gate = stored(product(x, wg.t()), dtype);
  p.up = stored(product(x, wu.t()), dtype);
  const Tracked s = sigmoid(p.gate);
  p.act = stored(p.gate * s * p.up, dtype);
  p.weighted = stored(w * p.act, dtype);
  p.dact = stored(product(dy, wd), dtype);
  const Tracked dweighted = stored(w * p.dact, dtype);
  p.dgate = stored(dweighted * p.up * (s + p.gate * s * (one - s)), dtype);
  p.dup = stored(dweighted * (p.gate * s), dtype);
  return p;
}

Tracked rows_of(const Tracked& a, const Tensor& rows) {
  return a.view([&](const Tensor& t) { return t.index_select(0, rows); });
}

void add_rows(Tracked& sum, const Tensor& rows, const Tracked& term) {
  const Tracked added = rows_of(sum, rows) + term;
  sum.value.index_copy_(0, rows, added.value);
  sum.error.index_copy_(0, rows, added.error);
}

Tensor fp64(const Tensor& x) { return x.detach().to(at::kDouble); }

}  // namespace

void MoeBlock::verify_tokens(const Sample& s) const {
  const auto dtype = shape_.dtype;
  const Tracked x = exact(x_TD_.index_select(0, s.tokens)), dy = exact(dy_TD_.index_select(0, s.tokens));
  const Tensor ids = s.ids_TK.index_select(0, s.tokens), weights = fp64(s.weights_TK.index_select(0, s.tokens));
  Tracked y = exact(at::zeros_like(x.value)), dx = y, dweights = exact(at::zeros_like(weights));
  dx = {dx.value.clone(), dx.error.clone()};
  for (int64_t e = 0; e < shape_.experts; ++e) {
    const Tensor where = (ids == e).nonzero();
    if (where.size(0) == 0) continue;
    const Tensor rows = where.select(1, 0), choice = where.select(1, 1);
    const Tensor w_R1 = weights.index({rows, choice}).unsqueeze(1);
    const Tensor wg = fp64(experts_.gate_LFD.value[e]), wu = fp64(experts_.up_LFD.value[e]),
                 wd = fp64(experts_.down_LDF.value[e]);
    const Tracked dy_R = rows_of(dy, rows);
    const ExpertPass p = pass_expert(rows_of(x, rows), dy_R, w_R1, wg, wu, wd, dtype);
    const Tracked down = stored(product(p.act, wd.t()), dtype);
    // The weight may be applied before the down projection or after it, so both places are rounded here.
    const Tracked out = stored(exact(w_R1) * down, dtype);
    const Tracked before = stored(product(p.weighted, wd.t()), dtype);
    add_rows(y, rows, {out.value, out.error + before.error});
    add_rows(dx, rows, stored(stored(product(p.dgate, wg), dtype) + stored(product(p.dup, wu), dtype), dtype));
    // ⟨act, dact⟩, or ⟨y, dy⟩, which has the same value.
    const Tracked inner = sum(p.act * p.dact, 1), outer = sum(down * dy_R, 1);
    dweights.value.index_put_({rows, choice}, inner.value);
    dweights.error.index_put_({rows, choice}, inner.error + outer.error);
  }
  require_within(s.y_TD.index_select(0, s.tokens), stored(y, dtype), shape_.name() + ", y");
  require_within(s.dx_TD.index_select(0, s.tokens), stored(dx, dtype), shape_.name() + ", dx");
  require_within(s.dweights_TK.index_select(0, s.tokens), dweights, shape_.name() + ", dweights");
}

void MoeBlock::verify_expert(const Sample& s, int64_t expert) const {
  const auto dtype = shape_.dtype;
  const Tensor where = (s.ids_TK == expert).nonzero(), rows = where.select(1, 0), choice = where.select(1, 1);
  const Tracked x = exact(x_TD_.index_select(0, rows)), dy = exact(dy_TD_.index_select(0, rows));
  const Tensor w_R1 = fp64(s.weights_TK).index({rows, choice}).unsqueeze(1);
  const Tensor wg = fp64(experts_.gate_LFD.value[expert].index_select(0, s.columns)),
               wu = fp64(experts_.up_LFD.value[expert].index_select(0, s.columns)),
               wd = fp64(experts_.down_LDF.value[expert].index_select(1, s.columns));
  const ExpertPass p = pass_expert(x, dy, w_R1, wg, wu, wd, dtype);
  const auto turned = [](const Tracked& a) { return a.view([](const Tensor& t) { return t.t(); }); };
  const auto check = [&](const Tensor& actual, const Tracked& dact, const Tensor& other, const char* name) {
    require_within(actual, stored(product(turned(dact), other), dtype),
                   fmt::format("{}, gradient of expert {}'s {} projection", shape_.name(), expert, name));
  };
  check(experts_.gate_LFD.grad[expert].index_select(0, s.columns), p.dgate, x.value, "gate");
  check(experts_.up_LFD.grad[expert].index_select(0, s.columns), p.dup, x.value, "up");
  check(experts_.down_LDF.grad[expert].index_select(1, s.columns).t(), p.weighted, dy.value, "down");
}

void MoeBlock::verify_router(const Tensor& ids_TK, const Tensor& weights_TK) const {
  const at::NoGradGuard no_grad;
  const Tensor tokens = spread_indices(shape_.tokens, 64);
  const Tracked logits =
      stored(product(exact(x_TD_.index_select(0, tokens)), fp64(router_ED_.value).t()), shape_.dtype);
  // A softmax moves by at most e^(2·error) − 1 if no logit moves by more than error; its own arithmetic adds some
  // roundings for each expert.
  const Tensor probs = at::softmax(logits.value, -1), error = std::get<0>(logits.error.max(-1, true));
  const Tensor relative = (2 * error).expm1() + ops::error_bound(1.0, at::kFloat, shape_.experts + 8);
  const Tensor ids = ids_TK.index_select(0, tokens), bound = probs * relative;
  const Tracked chosen{probs.gather(1, ids), bound.gather(1, ids)};
  require_within(weights_TK.index_select(0, tokens), chosen, shape_.name() + ", routing weights");
  // No expert that was left out may be better than the least of the chosen by more than the errors of both.
  const Tensor least = std::get<0>((chosen.value + chosen.error).min(-1, true));
  const Tensor left_out = (probs - bound).scatter(1, ids, 0.0);
  ATHANOR_CHECK_AS(Error, (left_out <= least).all().item<bool>(),
                   "wrong, so not timed: {}: the router left out a better expert than it chose", shape_.name());
}

// The block computes where it is, and its results are looked at on the host.
std::string MoeBlock::verify() const {
  Sample s;
  moe::Routing chosen;
  for (const Weight* w : {&experts_.gate_LFD, &experts_.up_LFD, &experts_.down_LDF}) w->grad.zero_();
  const Tensor x = x_TD_.detach().requires_grad_();
  {
    const at::NoGradGuard no_grad;
    chosen = moe::route(x_TD_, router_ED_, {.k = shape_.topk}, 1);
    const auto routing = route(x_TD_);
    s.ids_TK = routing.expert_ids_TK;
    s.weights_TK = routing.weights_TK.detach();
  }
  const Tensor weights = s.weights_TK.clone().requires_grad_();
  const Tensor y = ops::experts(x, weights, s.ids_TK, experts_, 0, shape_.experts);
  torch::autograd::backward({y}, {dy_TD_});
  s.y_TD = y.detach();
  s.dx_TD = x.grad();
  s.dweights_TK = weights.grad();
  for (Tensor* each : {&s.ids_TK, &s.weights_TK, &s.y_TD, &s.dx_TD, &s.dweights_TK}) *each = sent(*each, at::kCPU);
  s.tokens = spread_indices(shape_.tokens, 4);
  s.columns = spread_indices(shape_.ffn, 4);
  spoil_if_asked(s.y_TD);
  const MoeBlock here = on_host();
  here.verify_router(sent(chosen.expert_ids_TK, at::kCPU), sent(chosen.weights_TK, at::kCPU));
  here.verify_tokens(s);
  const Tensor counts = at::bincount(s.ids_TK.reshape({-1}), {}, shape_.experts);
  const auto most = counts.argmax().item<int64_t>(), least = counts.argmin().item<int64_t>();
  for (const int64_t expert : {most, least}) here.verify_expert(s, expert);
  return fmt::format(
      "verified at this shape against fp64: router, outputs and gradients of {} tokens, weight gradients "
      "of the fullest and the emptiest expert ({} and {} rows)",
      s.tokens.numel(), counts[most].item<int64_t>(), counts[least].item<int64_t>());
}

}  // namespace athanor::bench
