#pragma once
// Sums along the tree (communicator.h) between devices, whose libraries choose the order themselves: each part of a
// tensor is sent to the rank that owns it, which adds the terms in the tree's order and rounds once. So the bits of a
// sum depend on its terms alone: neither on the network nor on the algorithm that the library chooses.
//
// A reduce-scatter sends the bytes that a ring sends, b·(n−1)/n, in n−1 messages of one all-to-all. But none of them
// is a partial sum, so that more bytes leave a node: with g ranks on each, up to g times as many. A call needs scratch
// memory of the size of its input.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/communicator.h"

namespace athanor::comm {

/// Returns a backend that passes each call on to `inner`, except sums and means of floating-point numbers. Those run
/// on another stream, so that the caller's continues.
c10::intrusive_ptr<c10d::Backend> with_tree_sums(c10::intrusive_ptr<c10d::Backend> inner, c10::Device device,
                                                 SumTerms sum);

}  // namespace athanor::comm
