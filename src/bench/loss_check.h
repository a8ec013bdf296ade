#pragma once
// Checks what holds for any decoder and costs little to check: its loss is the loss of its logits, and it has a
// gradient.

#include <string>

#include "model/decoder.h"
#include "train/train_state.h"

namespace athanor::bench {

/// Runs forward and backward of tokens_BT, with each token as its own target.
/// @param tokens_BT  int64; few tokens, since the logits of all of them are computed at once.
/// @throws Error if the loss is not that of the logits, or the gradient is zero or not finite. Otherwise gradients are
///         zero afterwards.
/// @return what was verified, as a sentence.
std::string verify_loss(Decoder& decoder, const ParameterStore& parameters, const at::Tensor& tokens_BT);

}  // namespace athanor::bench
