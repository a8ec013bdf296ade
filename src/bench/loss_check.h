#pragma once
// Checks what holds for any decoder and costs little to check: its loss is the loss of its logits, and it has a
// gradient.

#include <string>

#include "model/decoder.h"
#include "train/train_state.h"

namespace athanor::bench {

/// @param tokens_BT  few tokens: the logits of all of them are computed.
/// @throws Error if the loss is not that of the logits, or the gradient is zero or not finite. Leaves gradients zero.
/// @return what was verified.
std::string verify_loss(Decoder& decoder, const ParameterStore& parameters, const at::Tensor& tokens_BT);

}  // namespace athanor::bench
