#include "ops/device/library_attention.h"

#include "ops/attention_spans.h"
#include "ops/played.h"

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where the documents are among the tokens: undefined offsets if each sequence is one. No number depends on the
// documents of a batch, so that the same launches serve the next one.
struct PackedDocuments {
  Tensor offsets;
  int64_t longest;  // no document has more tokens
  AttentionOptions options = {};

  // The keys before its own that a query sees, as flash attention takes it.
  std::optional<int64_t> before() const {
    return options.window > 0 ? std::optional(options.window - 1) : std::nullopt;
  }

  std::optional<Tensor> table() const { return offsets.defined() ? std::optional(offsets) : std::nullopt; }
};

// During its lifetime libtorch's flash backward adds in a fixed order. Libtorch chooses by a setting of the process;
// left on for a whole run, that setting would also fill all new memory and refuse products without a variable of the
// environment. Several threads may have such objects; the last one that ends restores what the first one found.
class FixedOrder {
 public:
  FixedOrder() {
    const std::lock_guard lock(shared().mutex);
    if (shared().num_objects++ > 0) return;
    shared().was_on = context_.deterministicAlgorithms();
    shared().warned = context_.deterministicAlgorithmsWarnOnly();
    shared().filled = context_.deterministicFillUninitializedMemory();
    context_.setDeterministicFillUninitializedMemory(false);
    context_.setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~FixedOrder() {
    const std::lock_guard lock(shared().mutex);
    if (--shared().num_objects > 0) return;
    context_.setDeterministicAlgorithms(shared().was_on, shared().warned);
    context_.setDeterministicFillUninitializedMemory(shared().filled);
  }
  FixedOrder(const FixedOrder&) = delete;
  FixedOrder& operator=(const FixedOrder&) = delete;

 private:
  struct Shared {
    std::mutex mutex;
    int num_objects = 0;
    bool was_on = false, warned = false, filled = false;  // before the first object
  };
  static Shared& shared() {
    static auto& it = *new Shared;
    return it;
  }
  at::Context& context_ = at::globalContext();
};

// What a forward leaves for its backward: q, k, v, the result, and what else the kernel returns.
using Kept = variable_list;

// q, k, v [tokens, heads, D] with offsets, [B, T, heads, D] without.
Kept flash_forward(const Tensor& q, const Tensor& k, const Tensor& v, const PackedDocuments& documents) {
  const auto [out, logsumexp, rng_state, unused, mask] =
      at::_flash_attention_forward(q, k, v, documents.table(), documents.table(), documents.longest, documents.longest,
                                   /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false,
                                   documents.options.given_scale(), documents.before());
  return {q, k, v, out, logsumexp, rng_state, unused};
}

variable_list flash_backward(const Tensor& dout, const Kept& kept, const PackedDocuments& documents) {
  const FixedOrder fixed_order;
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      dout, kept[0], kept[1], kept[2], kept[3], kept[4], documents.offsets, documents.offsets, documents.longest,
      documents.longest, /*dropout_p=*/0.0, /*is_causal=*/true, kept[5], kept[6], documents.options.given_scale(),
      documents.before());
  return {dq, dk, dv};
}

constexpr int64_t kCausal = 1;  // libtorch's CustomMaskType::CausalFromTopLeft

// q, k, v [1, tokens, heads, D] with offsets, [B, T, heads, D] without; as many key heads as query heads.
Kept efficient_forward(const Tensor& q, const Tensor& k, const Tensor& v, const PackedDocuments& documents) {
  const auto results = at::_efficient_attention_forward(
      q, k, v, /*bias=*/{}, documents.table(), documents.table(), documents.longest, documents.longest,
      /*dropout_p=*/0.0, kCausal, /*compute_log_sumexp=*/true, documents.options.given_scale());
  return {q, k, v, std::get<0>(results), std::get<1>(results), std::get<2>(results), std::get<3>(results)};
}

variable_list efficient_backward(const Tensor& dout, const Kept& kept, const PackedDocuments& documents) {
  // The gradients of queries are added in the order of the keys, since these are not split.
  const auto [dq, dk, dv, dbias] = at::_efficient_attention_backward(
      dout, kept[0], kept[1], kept[2], /*bias=*/{}, kept[3], documents.table(), documents.table(), documents.longest,
      documents.longest, kept[4], /*dropout_p=*/0.0, kept[5], kept[6], kCausal, /*bias_requires_grad=*/false,
      documents.options.given_scale(), /*num_splits_key=*/1);
  return {dq, dk, dv};
}

template <auto kForward, auto kBackward>
struct LibraryKernel : torch::autograd::Function<LibraryKernel<kForward, kBackward>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const PackedDocuments& documents) {
    Kept kept = kForward(q, k, v, documents);
    const Tensor out = kept[3];
    kept.push_back(documents.offsets);
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["longest"] = documents.longest;
    ctx->saved_data["options"] = numbers_of(documents.options);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto kept = ctx->get_saved_variables();
    auto result = kBackward(grads[0].contiguous(), kept,
                            {kept.back(), ctx->saved_data["longest"].toInt(), options_of(ctx->saved_data["options"])});
    result.emplace_back();  // the documents have none
    return result;
  }
};
using FlashAttention = LibraryKernel<flash_forward, flash_backward>;
using EfficientAttention = LibraryKernel<efficient_forward, efficient_backward>;

// The kernels read 16 bytes at a time.
bool has_whole_rows(at::ScalarType dtype, int64_t head_dim) {
  return head_dim * static_cast<int64_t>(c10::elementSize(dtype)) % 16 == 0;
}
Tensor aligned(const Tensor& x) {
  bool is_aligned = x.stride(-1) == 1 && has_whole_rows(x.scalar_type(), x.storage_offset());
  for (int64_t dim = 0; dim + 1 < x.dim(); ++dim) is_aligned &= has_whole_rows(x.scalar_type(), x.stride(dim));
  return is_aligned ? x : x.contiguous();
}

// [B, T, heads, D] → a key head for each query head.
Tensor repeated(const Tensor& x, int64_t num_heads) {
  const int64_t group = num_heads / x.size(2);
  return group == 1 ? x : x.unsqueeze(3).expand({-1, -1, -1, group, -1}).flatten(2, 3);
}

bool runs_one_token(AttentionForm form, const Tensor& like) {
  const at::NoGradGuard no_grad;
  const Tensor offsets = at::arange(2, like.options().dtype(at::kInt));  // 0, 1
  const bool is_flash = form == AttentionForm::kFlash;
  const Tensor one = at::zeros({1, 1, like.size(-1)}, like.options()), x = is_flash ? one : one.unsqueeze(0);
  try {
    const PackedDocuments documents{offsets, 1};
    const Kept kept = is_flash ? flash_forward(x, x, x, documents) : efficient_forward(x, x, x, documents);
    is_flash ? flash_backward(x, kept, documents) : efficient_backward(x, kept, documents);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

AttentionForm attention_form(at::ScalarType dtype, int64_t head_dim, int64_t num_documents,
                             const AttentionOptions& options, const std::function<bool(AttentionForm)>& runs) {
  // The kernels have one for each index of a grid's second or third dimension.
  constexpr int64_t kMostDocuments = 65535;
  constexpr int64_t kLargestFlashHead = 256;
  if (!has_whole_rows(dtype, head_dim) || num_documents > kMostDocuments || options.needs_steps())
    return AttentionForm::kSpans;
  const bool takes_flash = dtype == at::kBFloat16 && head_dim <= kLargestFlashHead;
  if (takes_flash && runs(AttentionForm::kFlash)) return AttentionForm::kFlash;
  return options.window == 0 && runs(AttentionForm::kEfficient) ? AttentionForm::kEfficient : AttentionForm::kSpans;
}

bool runs_here(AttentionForm form, const Tensor& x) {
  if (x.is_cpu() || played_place() == PlayedPlace::kOther) return false;
  if (played_place() == PlayedPlace::kCuda) return true;
  static std::mutex mutex;
  static std::map<std::tuple<AttentionForm, std::string, at::ScalarType, int64_t>, bool> known;  // guarded by mutex
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({form, x.device().str(), x.scalar_type(), x.size(-1)}, false);
  if (is_new) found->second = runs_one_token(form, x);
  return found->second;
}

Tensor flash_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                       const AttentionOptions& options) {
  const auto packed = [&](const Tensor& x) { return aligned(offsets.defined() ? x.flatten(0, 1) : x); };
  return FlashAttention::apply(packed(q), packed(k), packed(v), PackedDocuments{offsets, q.size(1), options})
      .view(q.sizes());
}

Tensor efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                           const AttentionOptions& options) {
  const auto packed = [&](const Tensor& x) {
    const Tensor wide = repeated(x, q.size(2));
    return aligned(offsets.defined() ? wide.flatten(0, 1).unsqueeze(0) : wide);
  };
  return EfficientAttention::apply(packed(q), packed(k), packed(v), PackedDocuments{offsets, q.size(1), options})
      .view(q.sizes());
}

}  // namespace athanor::ops::device
