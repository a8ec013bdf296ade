#include "bench/loss_check.h"

#include "bench/verify.h"
#include "ops/transfer.h"
#include "parallel/loss_sum.h"

namespace athanor::bench {

std::string verify_loss(Decoder& decoder, const ParameterStore& parameters, const at::Tensor& tokens_BT) {
  Labels labels;
  labels.targets = tokens_BT;
  labels.num_targets = tokens_BT.numel();
  labels.loss_scale = 1.0 / static_cast<double>(tokens_BT.numel());
  decoder.forward(0, tokens_BT, &labels);
  decoder.backward(0, {}, nullptr);
  const double loss = numbers_of(decoder.take_parts(0)).loss_sum;
  const Tensor logits = decoder.logits(tokens_BT).to(at::kDouble);
  const double expected =
      -ops::fetch_item<double>(at::log_softmax(logits, -1).gather(-1, tokens_BT.unsqueeze(-1)).sum());
  // A token's loss moves by at most twice as much as its logits do, and each side rounds them, which makes 4 roundings.
  // One more unit is for their sums.
  const double bound = static_cast<double>(tokens_BT.numel()) * 4 * (ops::fetch_item<double>(logits.abs().max()) + 1) *
                       kernels::kRoundoffBf16;
  ATHANOR_CHECK_AS(Error, std::abs(loss - expected) <= bound,
                   "wrong, so not timed: the loss is {}, that of the logits {} ± {}", loss, expected, bound);
  Tensor grad = parameters.grad();
  const double norm = ops::fetch_item<double>(grad.norm().to(at::kDouble));
  ATHANOR_CHECK_AS(Error, norm > 0 && std::isfinite(norm), "wrong, so not timed: the gradient's norm is {}", norm);
  grad.zero_();
  return "verified: the loss is that of the logits, and the gradient is finite and not zero";
}

}  // namespace athanor::bench
