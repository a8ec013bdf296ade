#pragma once
// What holds for any decoder, and costs little to see: its loss is that of its logits, and it has a gradient.

#include <string>

#include "model/decoder.h"
#include "train/train_state.h"

namespace athanor::bench {

/// @param tokens_BT  few: logits of all of them are made.
/// @throws Error if the loss is not that of the logits, or the gradient zero or not finite. Leaves gradients zero.
/// @return what was verified.
std::string verify_loss(Decoder& decoder, const ParameterStore& parameters, const at::Tensor& tokens_BT);

}  // namespace athanor::bench
