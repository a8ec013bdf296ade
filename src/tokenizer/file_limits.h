#pragma once
// What a tokenizer's file may contain at most. Real files stay far below; beyond these limits a file is taken for
// damaged.

#include <cstddef>
#include <cstdint>

namespace athanor::inline tokenizer {

constexpr uint64_t kMaxTokenId = uint64_t{1} << 31;  ///< ids are below it
constexpr int kMaxNesting = 32;                      ///< sequences of steps that are nested in each other
constexpr size_t kMaxSteps = 256;                    ///< normalizers, pre-tokenizers or decoders

}  // namespace athanor::inline tokenizer
