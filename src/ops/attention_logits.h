#pragma once
// The largest logits of attention, for statistics: attention itself keeps no logits.

#include "ops/attention.h"

namespace athanor::ops {

/// Computes the logits of attention() once more, in fp32 and block by block, and returns the largest one of each
/// sequence and head: [B, heads] fp32. Arguments as in attention(). It takes about half as many products as attention's
/// forward, and memory for 64 rows of logits of all heads.
Tensor largest_attention_logits(const Tensor& q, const Tensor& k, const DocumentLengths& documents = {});

}  // namespace athanor::ops
