#include "layout/device_workspace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace athanor::inline layout {
namespace {

constexpr double kBytesOfKiB = 1 << 10, kHopperWorkspace = 32 << 20;
constexpr double kMultiprocessors = 132;  // an H100 and an H200 have as many

double round_up(double value, double multiple) { return std::ceil(value / multiple) * multiple; }

// Takes ":" and a number off the front of `text`.
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || text.front() != ':') return {};
  uint64_t value = 0;
  const auto read = std::from_chars(text.data() + 1, text.data() + text.size(), value);
  if (read.ec != std::errc{}) return {};
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return static_cast<double>(value);
}

double flash_bytes(const AttentionCall& c) {
  constexpr double kRows = 128;
  const double documents = c.documents > 0 ? c.documents : c.sequences;
  const double rows = c.documents > 0 ? c.tokens() + kRows * c.documents : c.sequences * round_up(c.seq_len, kRows);
  const double copies = std::ceil(kMultiprocessors / (documents * c.heads));
  const double sums = 4 * c.heads * rows, query = sums * round_up(c.head_dim, c.head_dim <= 128 ? 32 : 64);
  const double key_and_value = c.kv_heads == c.heads ? 0 : 2 * 2 * c.tokens() * c.heads * c.head_dim;
  return sums + copies * query + key_and_value;
}

double efficient_bytes(const AttentionCall& c) {
  constexpr double kColumns = 64;
  const double rows = c.head_dim > 64 ? 128 : 64, documents = c.documents > 0 ? c.documents : c.sequences;
  const double tiles = std::ceil(c.seq_len / rows) * std::ceil(c.head_dim / kColumns);
  // Results in bf16 are not added to in place, so those of a key and a value have a block, too.
  const double blocks = c.bf16 ? 2 * kColumns * round_up(c.head_dim, rows) : 0;
  const double sums = 4 * c.tokens() * c.heads;
  const double accumulated = documents * c.heads * 4 * (tiles * (4 + rows * kColumns) + blocks);
  const double forming_sums = c.bf16 ? 0 : sums * (c.head_dim + 2);
  return std::max(forming_sums, sums + accumulated);
}

}  // namespace

double cublas_workspace_bytes() {
  const char* set = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  double bytes = 0;
  bool has_any = false;
  for (std::string_view text = set ? set : ""; !text.empty();) {
    std::string_view rest = text;
    const auto size = take_number(rest), count = size ? take_number(rest) : size;
    if (count) {
      bytes += *size * kBytesOfKiB * *count;
      has_any = true;
      text = rest;
    } else {
      text.remove_prefix(1);
    }
  }
  return has_any ? bytes : kHopperWorkspace;
}

int count_cublas_workspaces(bool records_graph) { return records_graph ? 4 : 2; }

AttentionKernel attention_kernel(const AttentionCall& call) {
  constexpr double kMostDocuments = 65535;
  if (std::fmod(call.head_dim * (call.bf16 ? 2 : 4), 16) != 0) return AttentionKernel::kOther;
  if (std::max(call.documents, call.sequences) > kMostDocuments) return AttentionKernel::kOther;
  if (call.soft_cap || call.sinks) return AttentionKernel::kOther;
  if (call.bf16 && call.head_dim <= 256) return AttentionKernel::kFlash;
  return call.window > 0 ? AttentionKernel::kOther : AttentionKernel::kEfficient;
}

double AttentionCall::backward_bytes() const {
  // Logits, the same with sinks, their softmax, and the gradients of both; queries, keys and values in fp32.
  if (sinks) return 5 * scores_bytes() + 6 * 4 * tokens() * heads * head_dim;
  if (soft_cap) return 2 * scores_bytes();  // the gradients of tanh and of softmax
  switch (kernel) {
    case AttentionKernel::kFlash: return flash_bytes(*this);
    case AttentionKernel::kEfficient: return efficient_bytes(*this);
    case AttentionKernel::kOther: break;
  }
  return 0;
}

double AttentionCall::logsumexp_bytes() const {
  constexpr double kRows = 32;
  if (kernel != AttentionKernel::kEfficient) return 4 * tokens() * heads;
  return 4 * heads * (documents > 0 ? documents : sequences) * round_up(seq_len, kRows);
}

double AttentionCall::mask_bytes() const {
  if (sinks) return 0;
  if (soft_cap) return 2 * scores_bytes() + (bf16 ? 3 * 4 * tokens() * heads * head_dim : 0);
  const bool hides = window > 0 && window < seq_len;
  return hides && kernel == AttentionKernel::kOther ? 5 * seq_len * seq_len : 0;
}

bool uses_cuda_libraries(const RunConfig& config, Multiplier multiplier) {
  return multiplier.on_device && config.train.device != DeviceKind::kXpu;
}

double count_table_documents(int64_t sequences, int64_t seq_len) {
  constexpr int64_t kTokens = 128;  // as document_room in ops/document_tables.cpp
  const int64_t room = std::max({int64_t{1}, sequences, sequences * seq_len / kTokens});
  return static_cast<double>(2 * (room / 2) + 1);  // pairs of int32 for room + 1 offsets
}

}  // namespace athanor::inline layout
