// The conditions of a tensor degree on the model's heads and widths, and of sequence parallelism on the length of an
// instance.

#include <numeric>

#include "config/findings.h"
#include "layout/layout_faults.h"

namespace athanor::inline layout {
namespace {

// Keys and values are divided, or neighbours hold the same head.
void check_heads(const ModelConfig& model, int64_t degree, Findings& found) {
  const int64_t heads = model.num_attention_heads, kv_heads = model.kv_heads();
  found.require(heads % degree == 0,
                "parallelism.tensor_parallel_degree ({}) must divide model.num_attention_heads ({}): no two ranks "
                "share a query head; set it to one of {}",
                degree, heads, divisors_of(heads));
  if (kv_heads == heads) return;
  found.require(kv_heads % degree == 0 || degree % kv_heads == 0,
                "parallelism.tensor_parallel_degree ({}) must divide model.num_key_value_heads ({}), or be a multiple "
                "of it: ranks have different heads, or equally many ranks share each head; set it to one of {}",
                degree, kv_heads, divisors_of(kv_heads));
}

void check_widths(const ModelConfig& model, int64_t degree, Findings& found) {
  const auto check = [&](const char* what, const char* name, int64_t width) {
    found.require(width % degree == 0,
                  "parallelism.tensor_parallel_degree ({}) must divide {} ({}), of which each rank has a part in {}; "
                  "lower the degree, or make the width a multiple of {}",
                  degree, name, width, what, degree);
  };
  const int64_t sparse = model.num_sparse_layers();
  const bool one_name = model.moe_intermediate_size == 0;
  if (sparse < model.num_hidden_layers) check("dense layers", "model.intermediate_size", model.intermediate_size);
  if (sparse == 0) return;
  // Shared experts together are a whole number of experts wide, so they need no condition.
  if (!one_name) check("experts", "model.moe_intermediate_size", model.moe_intermediate_size);
  if (one_name && sparse == model.num_hidden_layers) {
    check("experts", "model.intermediate_size", model.intermediate_size);
  }
}

}  // namespace

std::vector<std::string> find_tensor_faults(const ModelConfig& model, int64_t degree) {
  Findings found;
  if (degree == 1) return found.take();
  check_heads(model, degree, found);
  check_widths(model, degree, found);
  found.require(model.vocab_size >= degree,
                "parallelism.tensor_parallel_degree ({}) is more than model.vocab_size ({}): each rank holds rows of "
                "the embedding; lower it",
                degree, model.vocab_size);
  return found.take();
}

std::vector<std::string> find_sequence_faults(const ParallelismConfig& p, int64_t seq_len) {
  Findings found;
  found.require(!p.sequence_parallel || seq_len <= 0 || seq_len % p.tensor_parallel_degree == 0,
                "parallelism.sequence_parallel: parallelism.tensor_parallel_degree ({}) must divide data.seq_len ({}), "
                "of whose tokens each rank has its part; choose another degree, prepare instances of a multiple of {}, "
                "or turn it off",
                p.tensor_parallel_degree, seq_len, p.tensor_parallel_degree);
  return found.take();
}

}  // namespace athanor::inline layout
