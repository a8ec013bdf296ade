#pragma once
// Calls every kernel that is compiled once for each level of x86-64, and keeps the bits of the outputs.
//
// Included in the plain namespace athanor::kernels, it calls the versions that the loader chose for this machine. The
// isa_*_test.cpp files include it together with the kernels' sources under other names, each for a single level.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/accumulate.h"
#include "kernels/adamw.h"
#include "kernels/affine.h"
#include "kernels/cache_attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/expert_activation.h"
#include "kernels/gelu.h"
#include "kernels/master.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/routing.h"
#include "kernels/row_gate.h"
#include "kernels/soft_cap.h"
#include "kernels/softmax_tile.h"
#include "kernels/swiglu.h"
#include "kernels/symmetric.h"

namespace athanor::kernels::test {

// Each file that includes this has a separate class, compiled for its level.
class IsaOutputs {
 public:
  // 3 rows of 103 elements cover whole vectors, a tail, and rows that start unaligned.
  static constexpr int64_t kRows = 3, kWidth = 103, kCount = kRows * kWidth;

  std::vector<std::pair<std::string, std::vector<unsigned char>>> all() {
    run<float>("fp32");
    run<Bf16>("bf16");
    run_adamw();
    return std::move(outputs_);
  }

 private:
  template <class T>
  static std::vector<T> numbers(int64_t n, unsigned salt, float scale = 1) {
    std::vector<T> x(static_cast<size_t>(n));
    unsigned state = salt * 2654435761u + 1;
    for (T& value : x) {
      state = state * 1664525u + 1013904223u;
      store(value, (static_cast<float>(state >> 8) * 0x1p-23f - 1) * scale);
    }
    return x;
  }

  template <class T>
  void keep(const std::string& name, const std::vector<T>& x) {
    std::vector<unsigned char> bytes(x.size() * sizeof(T));
    std::memcpy(bytes.data(), x.data(), bytes.size());
    outputs_.emplace_back(name, std::move(bytes));
  }

  template <class T>
  void run(const std::string& type) {
    run_norms<T>(type);
    run_elementwise<T>(type);
    run_rows<T>(type);
    run_softmax<T>(type);
    run_cache_attention<T>(type);
    run_symmetric<T>(type);
    run_router<T>(type, false);
    run_router<T>(type, true);
  }

  template <class T>
  void run_norms(const std::string& type) {
    const auto x = numbers<T>(kCount, 1, 3), w = numbers<T>(kWidth, 2), dy = numbers<T>(kCount, 3);
    std::vector<T> y(kCount), dx(kCount);
    std::vector<float> rstd(kRows), mean(kRows), dw(kWidth, 0.25f);
    rms_norm_forward(x.data(), w.data(), y.data(), rstd.data(), kRows, kWidth, 1e-5f);
    rms_norm_backward(dy.data(), x.data(), w.data(), rstd.data(), dx.data(), dw.data(), kRows, kWidth);
    keep(type + " rms_norm y", y), keep(type + " rms_norm rstd", rstd);
    keep(type + " rms_norm dx", dx), keep(type + " rms_norm dw", dw);
    square_sums(x.data(), mean.data(), kRows, kWidth), keep(type + " square sums", mean);
    rms_norm_scale(x.data(), w.data(), rstd.data(), y.data(), kRows, kWidth), keep(type + " rms_norm scale", y);
    rms_norm_dots(dy.data(), x.data(), w.data(), rstd.data(), mean.data(), kRows, kWidth);
    keep(type + " rms_norm dots", mean);
    rms_norm_backward_of_means(dy.data(), x.data(), w.data(), rstd.data(), mean.data(), dx.data(), dw.data(), kRows,
                               kWidth);
    keep(type + " rms_norm dx of means", dx);
    layer_norm_forward(x.data(), y.data(), mean.data(), rstd.data(), kRows, kWidth, 1e-5f);
    layer_norm_backward(dy.data(), x.data(), mean.data(), rstd.data(), dx.data(), kRows, kWidth);
    keep(type + " layer_norm y", y), keep(type + " layer_norm mean", mean), keep(type + " layer_norm rstd", rstd);
    keep(type + " layer_norm dx", dx);

    const auto gate = numbers<T>(kRows, 18);
    std::vector<T> dgate(kRows);
    row_gate_forward(x.data(), gate.data(), y.data(), kRows, kWidth), keep(type + " row gate y", y);
    row_gate_backward(dy.data(), x.data(), gate.data(), dx.data(), dgate.data(), kRows, kWidth);
    keep(type + " row gate dx", dx), keep(type + " row gate dgate", dgate);

    const auto branch = numbers<T>(kCount, 19);
    std::vector<T> sum(kCount);
    const auto bias = numbers<T>(kWidth, 9);
    std::vector<float> dbias(kWidth);
    affine_forward(x.data(), w.data(), bias.data(), y.data(), kRows, kWidth), keep(type + " affine y", y);
    affine_backward(dy.data(), x.data(), w.data(), dx.data(), dw.data(), dbias.data(), kRows, kWidth);
    keep(type + " affine dx", dx), keep(type + " affine dscale", dw), keep(type + " affine dbias", dbias);
    add_rms_norm_forward(x.data(), branch.data(), w.data(), sum.data(), y.data(), rstd.data(), kRows, kWidth, 1e-5f);
    add_rms_norm_backward(x.data(), dy.data(), sum.data(), w.data(), rstd.data(), dx.data(), dw.data(), kRows, kWidth);
    keep(type + " add_rms_norm sum", sum), keep(type + " add_rms_norm y", y), keep(type + " add_rms_norm dx", dx);
    add_layer_norm_forward(x.data(), branch.data(), sum.data(), y.data(), mean.data(), rstd.data(), kRows, kWidth,
                           1e-5f);
    add_layer_norm_backward(x.data(), dy.data(), sum.data(), mean.data(), rstd.data(), dx.data(), kRows, kWidth);
    keep(type + " add_layer_norm y", y), keep(type + " add_layer_norm dx", dx);
  }

  template <class T>
  void run_elementwise(const std::string& type) {
    const auto gate = numbers<T>(kCount, 4, 12), up = numbers<T>(kCount, 5), dout = numbers<T>(kCount, 6);
    std::vector<T> out(kCount), dgate(kCount), dup(kCount);
    swiglu_forward(gate.data(), up.data(), out.data(), kCount);
    swiglu_backward(dout.data(), gate.data(), up.data(), dgate.data(), dup.data(), kCount);
    keep(type + " swiglu out", out), keep(type + " swiglu dgate", dgate), keep(type + " swiglu dup", dup);

    std::vector<float> sum = numbers<float>(kCount, 7);
    for (const GeluForm form : {GeluForm::kTanh, GeluForm::kExact}) {
      gelu_forward(form, gate.data(), out.data(), kCount);
      gelu_backward(form, dout.data(), gate.data(), dgate.data(), kCount);
      const std::string name = type + (form == GeluForm::kTanh ? " gelu with tanh" : " gelu");
      keep(name + " y", out), keep(name + " dx", dgate);
    }
    accumulate(sum.data(), out.data(), kCount);
    keep(type + " accumulate", sum);

    geglu_forward(gate.data(), up.data(), out.data(), kCount);
    geglu_backward(dout.data(), gate.data(), up.data(), dgate.data(), dup.data(), kCount);
    keep(type + " geglu out", out), keep(type + " geglu dgate", dgate), keep(type + " geglu dup", dup);
    soft_cap_forward(gate.data(), out.data(), kCount, 5.0f);
    soft_cap_backward(dout.data(), gate.data(), dgate.data(), kCount, 5.0f);
    keep(type + " soft cap y", out), keep(type + " soft cap dx", dgate);

    constexpr int64_t kTokens = 3, kHeads = 2, kHeadDim = 46;
    const auto x = numbers<T>(kTokens * kHeads * kHeadDim, 8);
    const auto cos = numbers<float>(kTokens * kHeadDim / 2, 9), sin = numbers<float>(kTokens * kHeadDim / 2, 10);
    std::vector<T> y(x.size());
    rope(x.data(), y.data(), cos.data(), sin.data(), kTokens, kHeads, kHeadDim, -1.0f);
    keep(type + " rope", y);
  }

  template <class T>
  void run_rows(const std::string& type) {
    auto logits = numbers<T>(kCount, 11, 20);
    const std::vector<int64_t> targets = {5, kNoTarget, 102};
    std::vector<float> losses(kRows);
    cross_entropy(logits.data(), targets.data(), losses.data(), nullptr, kRows, kWidth, 0.3f);
    keep(type + " cross_entropy losses", losses), keep(type + " cross_entropy gradient", logits);

    auto part = numbers<T>(kCount, 31, 20);
    std::vector<float> maxima(kRows), sums(kRows), at_target(kRows);
    row_maxima(part.data(), targets.data(), maxima.data(), kRows, kWidth);
    exp_sums(part.data(), targets.data(), maxima.data(), sums.data(), at_target.data(), nullptr, kRows, kWidth, 1);
    softmax_gradient(part.data(), targets.data(), maxima.data(), sums.data(), kRows, kWidth, 1, 0.3f);
    keep(type + " maxima", maxima), keep(type + " exp sums", sums), keep(type + " softmax gradient", part);

    const std::vector<int64_t> choice_of_row = {3, 0, 5, 2}, row_of_choice = {1, -1, 3, 0, -1, 2};  // 3 tokens, k = 2
    const auto x = numbers<T>(kCount, 12), y = numbers<T>(4 * kWidth, 13);
    const auto weights = numbers<float>(6, 14);
    std::vector<T> rows(4 * kWidth), out(kCount);
    gather_rows(x.data(), choice_of_row.data(), rows.data(), 0, 4, 2, kWidth);
    combine_rows(y.data(), weights.data(), row_of_choice.data(), out.data(), 0, kRows, 2, kWidth);
    keep(type + " gather", rows), keep(type + " combine", out);
    const auto gate = numbers<T>(4 * kWidth, 28, 4), up = numbers<T>(4 * kWidth, 29);
    auto dact = numbers<T>(4 * kWidth, 30);
    std::vector<T> act(4 * kWidth), dup(4 * kWidth);
    std::vector<float> dweights(6);
    expert_activation(gate.data(), up.data(), weights.data(), choice_of_row.data(), act.data(), 0, 4, kWidth);
    keep(type + " expert activation", act);
    expert_activation_backward(gate.data(), up.data(), dact.data(), dup.data(), act.data(), weights.data(),
                               choice_of_row.data(), dweights.data(), 0, 4, kWidth);
    keep(type + " expert dgate", dact), keep(type + " expert dup", dup), keep(type + " expert dweights", dweights);
    const GatedUnit clamped{.slope = 1.702f, .limit = 0.8f, .offset = 1};
    expert_activation_backward(gate.data(), up.data(), dact.data(), dup.data(), act.data(), weights.data(),
                               choice_of_row.data(), dweights.data(), 0, 4, kWidth, clamped);
    keep(type + " clamped act", act), keep(type + " clamped dgate", dact), keep(type + " clamped dup", dup);
    expert_gelu_backward(up.data(), dact.data(), act.data(), weights.data(), choice_of_row.data(), dweights.data(), 0,
                         4, kWidth);
    keep(type + " expert gelu", act), keep(type + " expert gelu's gradient", dact);
    const std::vector<int64_t> first_row = {0, 1, 4};
    const ExpertBias<T> bias{gate.data(), first_row.data(), 2, kWidth, 0};
    add_expert_bias(bias, weights.data(), choice_of_row.data(), act.data(), 0, 4, kWidth);
    expert_bias_backward(bias, act.data(), choice_of_row.data(), dweights.data(), 0, 4, kWidth);
    keep(type + " expert bias", act), keep(type + " expert bias's dweights", dweights);
  }

  template <class T>
  void run_router(const std::string& type, bool sigmoid) {
    const std::string name = type + (sigmoid ? " router sigmoid " : " router softmax ");
    const RouterRule rule{kWidth, 2, sigmoid, true, 2.5f};
    const auto logits = numbers<T>(kCount, 25, 4);
    const std::vector<int64_t> ids = {5, 17, ~0, 102, 64, 3};
    const auto dweights = numbers<float>(kRows * 2, 26), dprob_sum = numbers<float>(kWidth, 27);
    std::vector<float> scores(kCount), logsumexp(kRows), weights(kRows * 2), prob_sum(kWidth);
    std::vector<T> dlogits(kCount);
    router_scores(logits.data(), scores.data(), logsumexp.data(), kRows, rule);
    router_weights(scores.data(), ids.data(), weights.data(), kRows, rule);
    const RouterSums sums = router_sums(logits.data(), scores.data(), logsumexp.data(), prob_sum.data(), kRows, rule);
    router_backward(logits.data(), scores.data(), logsumexp.data(), ids.data(), dweights.data(), dprob_sum.data(), 0.3f,
                    dlogits.data(), kRows, rule);
    keep(name + "scores", scores), keep(name + "logsumexp", logsumexp), keep(name + "weights", weights);
    keep(name + "sums", std::vector<double>{sums.z, sums.entropy}), keep(name + "prob_sum", prob_sum);
    keep(name + "dlogits", dlogits);
  }

  template <class T>
  void run_softmax(const std::string& type) {
    constexpr int64_t kTiles = 3, kLd = kTiles * kTileColumns, kQueries = 11;  // the last pair has one row
    constexpr int64_t kScores = kTiles * kTileRows * kTileColumns;
    auto scores = numbers<float>(kScores, 20, 6);
    const auto dp = numbers<float>(kScores, 21), dot = numbers<float>(kTileRows, 22);
    std::vector<float> rescale(kQueries), dots(kRows);
    std::vector<T> p(kTileRows * kLd), p_steps(p.size()), ds_steps(p.size()), ds_rows(p.size());
    const std::vector<float> logsumexp(kTileRows, 5.0f);
    softmax_gradient_tiles(scores.data(), dp.data(), nullptr, kQueries, kTiles, {70}, 0.3f, logsumexp.data(),
                           dot.data(), p_steps.data(), ds_steps.data(), ds_rows.data(), kLd);
    keep(type + " softmax p", p_steps), keep(type + " softmax ds", ds_steps), keep(type + " softmax rows", ds_rows);
    auto capped = scores;
    std::vector<float> slope(capped.size());
    cap_tiles(capped.data(), kQueries, kTiles, 0.3f, 1.5f, slope.data());
    keep(type + " capped scores", capped), keep(type + " capped slope", slope);
    softmax_gradient_tiles(capped.data(), dp.data(), slope.data(), kQueries, kTiles, {70}, 1, logsumexp.data(),
                           dot.data(), p_steps.data(), ds_steps.data(), ds_rows.data(), kLd);
    keep(type + " capped ds", ds_steps);
    SoftmaxRows rows{};
    softmax_tiles(scores.data(), kQueries, kTiles, {70}, 0.3f, rows, rescale.data(), p.data(), kLd);
    keep(type + " softmax weights", p), keep(type + " softmax rescale", rescale);
    keep(type + " softmax sums", std::vector<SoftmaxRows>{rows});
    const auto a = numbers<T>(kCount, 23), b = numbers<T>(kCount, 24);
    row_dots(a.data(), kWidth, b.data(), kWidth, kRows, kWidth, dots.data());
    keep(type + " row_dots", dots);
  }

  template <class T>
  void run_cache_attention(const std::string& type) {
    constexpr int64_t kGroup = 2, kHeadDim = 46, kLength = 37, kLd = 2 * kHeadDim;
    const auto keys = numbers<T>(kLength * kLd, 32), values = numbers<T>(kLength * kLd, 33);
    const auto q = numbers<T>(kGroup * kHeadDim, 34, 4);
    std::vector<T> out(kGroup * kHeadDim);
    std::vector<float> scratch(static_cast<size_t>(cache_attention_scratch(kLength, kGroup, kHeadDim)));
    cache_attention<T>({keys.data(), values.data(), kLd, kLength}, q.data(), out.data(), kGroup, kHeadDim, 0.15f, 0,
                       nullptr, scratch.data());
    keep(type + " cache attention", out);
    cache_attention<T>({keys.data(), values.data(), kLd, kLength}, q.data(), out.data(), kGroup, kHeadDim, 0.15f, 2.0f,
                       nullptr, scratch.data());
    keep(type + " capped cache attention", out);
    const auto sinks = numbers<float>(kGroup, 38);
    cache_attention<T>({keys.data(), values.data(), kLd, kLength}, q.data(), out.data(), kGroup, kHeadDim, 0.15f, 0,
                       sinks.data(), scratch.data());
    keep(type + " cache attention with sinks", out);
  }

  template <class T>
  void run_symmetric(const std::string& type) {
    constexpr int64_t kSide = 70;  // whole tiles, and edges
    auto first = numbers<T>(kSide * kSide, 35);
    const auto second = numbers<float>(kSide * kSide, 36);
    std::vector<T> out(first.size()), turned(kCount);
    mirror(first.data(), kSide, 0, kSide);
    add_symmetric(1.5f, 0.3f, first.data(), 0.7f, second.data(), out.data(), kSide, 0, kSide);
    convert_rows(numbers<float>(kCount, 37).data(), kRows, kWidth, 0.3f, true, turned.data(), 0, kRows);
    keep(type + " mirror", first), keep(type + " add_symmetric", out), keep(type + " convert_rows", turned);
  }

  void run_adamw() {
    const AdamwStep step{.lr = 1e-2f,
                         .eps = 1e-8f,
                         .weight_decay = 0.1f,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .bias_correction1 = 0.1f,
                         .bias_correction2 = 0.05f,
                         .grad_scale = 0.7f};
    auto master = numbers<float>(kCount, 15), m = numbers<float>(kCount, 16), grad = numbers<float>(kCount, 18);
    auto v = numbers<float>(kCount, 17);
    for (float& value : v) value *= value;
    std::vector<Bf16> weight(kCount);
    std::vector<uint16_t> low(kCount);
    for (size_t i = 0; i < weight.size(); ++i) split_master(master[i], weight[i], low[i]);
    keep("sum_of_squares", std::vector<double>{sum_of_squares(grad.data(), kCount)});
    auto m_split = m, v_split = v, grad_split = grad;
    const int64_t changed = adamw(step, master.data(), m.data(), v.data(), grad.data(), kCount);
    keep("adamw changed", std::vector<int64_t>{changed});
    keep("adamw master", master), keep("adamw exp_avg", m), keep("adamw exp_avg_sq", v);
    const int64_t changed_split =
        adamw(step, weight.data(), low.data(), m_split.data(), v_split.data(), grad_split.data(), kCount);
    keep("adamw split changed", std::vector<int64_t>{changed_split});
    keep("adamw split weight", weight), keep("adamw split low", low), keep("adamw split exp_avg_sq", v_split);
  }

  std::vector<std::pair<std::string, std::vector<unsigned char>>> outputs_;
};

}  // namespace athanor::kernels::test
