// Libtorch's kernels of attention as CUDA has them: what they refuse, which parts of their results they leave
// unwritten, and when their sums have no fixed order. The CPU computes them in fp32.
//
// Their schemas differ between versions of libtorch at the end of their arguments, so they are registered boxed.

#include <ATen/Context.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "guarded/open_view.h"
#include "guarded/ops.h"
#include "kernels/cuda/attention_memory.h"

namespace athanor::guarded {
namespace {

using at::Tensor;
using torch::jit::Stack;

// Both kernels see the tokens of all sequences one after the other, [N, heads, D].
struct Shape {
  int64_t tokens, longest;
  bool is_dense;  // every sequence is a document of `longest` tokens
  double scale;
  int64_t window = 0;  // keys that a query sees, its own included; 0: all before it
};

struct Range {
  int64_t begin, length;
};

// Returns the tokens of each document; called by queued work.
std::vector<Range> documents_of(const Shape& shape, const std::optional<OpenView>& offsets) {
  std::vector<Range> ranges;
  if (shape.is_dense) {
    for (int64_t begin = 0; begin < shape.tokens; begin += shape.longest) ranges.push_back({begin, shape.longest});
    return ranges;
  }
  const Tensor table = offsets->tensor();
  const auto* at = table.const_data_ptr<int32_t>();
  for (int64_t d = 0; d + 1 < table.numel(); ++d) {
    ranges.push_back({at[d], at[d + 1] - at[d]});
    // CUDA would compute the first tokens only, or other memory.
    ATHANOR_CHECK_AS(
        Error, at[d] >= 0 && at[d] <= at[d + 1] && at[d + 1] <= shape.tokens && ranges.back().length <= shape.longest,
        "document {} has tokens {} to {} of {}, {} at most", d, at[d], at[d + 1], shape.tokens, shape.longest);
  }
  return ranges;
}

// The logarithms of each document's sums, [heads, tokens of it]: flash has one row for all documents of a table, else
// there is one for each document, with room for the longest.
Tensor logsumexp_of(const Tensor& all, size_t document, const Range& range) {
  return all.dim() == 2 ? all.narrow(1, range.begin, range.length)
                        : all[static_cast<int64_t>(document)].narrow(1, 0, range.length);
}

Tensor flat(const OpenView& x) { return x.tensor().reshape({-1, x.sizes[x.sizes.size() - 2], x.sizes.back()}); }

// [heads, tokens of the document, D] in fp32; a key head for each query head.
Tensor rows_of(const Tensor& x_NHD, const Range& range, int64_t num_heads) {
  const Tensor rows = x_NHD.narrow(0, range.begin, range.length).transpose(0, 1).to(at::kFloat);
  return rows.repeat_interleave(num_heads / rows.size(0), 0);
}

Tensor scores_of(const Tensor& q_HTD, const Tensor& k_HTD, const Shape& shape) {
  const int64_t tokens = q_HTD.size(1);
  Tensor hidden = at::ones({tokens, tokens}, at::kBool).triu(1);
  if (shape.window > 0) hidden.logical_or_(at::ones({tokens, tokens}, at::kBool).tril(-shape.window));
  return (at::matmul(q_HTD, k_HTD.transpose(1, 2)) * shape.scale)
      .masked_fill(hidden, -std::numeric_limits<float>::infinity());
}

struct Inputs {
  Shape shape;
  OpenView q, k, v;
  std::optional<OpenView> offsets;

  Inputs(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& table, int64_t longest,
         std::optional<double> scale, std::optional<int64_t> keys_before = {})
      : shape{query.numel() / (query.size(-1) * query.size(-2)), table.defined() ? longest : query.size(1),
              !table.defined(), scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))},
        q(query), k(key), v(value) {
    if (table.defined()) offsets.emplace(table);
    if (keys_before) shape.window = *keys_before + 1;
  }
};

void submit_forward(const char* name, const Inputs& in, const Tensor& out, const Tensor& logsumexp) {
  queues().submit(current_stream(), name, [in, out = OpenView(out), sums = OpenView(logsumexp)] {
    const at::AutoDispatchBelowAutograd below;
    const Tensor q = flat(in.q), k = flat(in.k), v = flat(in.v), to = out.tensor().view(q.sizes());
    const auto documents = documents_of(in.shape, in.offsets);
    for (size_t d = 0; d < documents.size(); ++d) {
      const Range& range = documents[d];
      if (range.length == 0) continue;
      const auto rows = [&](const Tensor& x) { return rows_of(x, range, q.size(1)); };
      const Tensor scores = scores_of(rows(q), rows(k), in.shape), sum = at::logsumexp(scores, -1);
      logsumexp_of(sums.tensor(), d, range).copy_(sum);
      const Tensor result = at::matmul((scores - sum.unsqueeze(-1)).exp(), rows(v));
      to.narrow(0, range.begin, range.length).copy_(result.transpose(0, 1));
    }
  });
}

using kernels::cuda::AttentionShape;

AttentionShape memory_shape(const Tensor& q, const Tensor& k, const Tensor& offsets, int64_t longest) {
  const int64_t tokens = q.numel() / (q.size(-1) * q.size(-2)), seq_len = offsets.defined() ? longest : q.size(1);
  return {tokens / seq_len,
          seq_len,
          q.size(-2),
          k.size(-2),
          q.size(-1),
          offsets.defined() ? offsets.numel() - 1 : 0,
          q.scalar_type() == at::kBFloat16};
}

// Allocates as much as the kernels of CUDA take for a moment, and frees it.
void take(const Tensor& like, int64_t bytes) { at::empty({bytes}, like.options().dtype(at::kByte)); }

struct Outputs {
  Tensor dq, dk, dv;

  explicit Outputs(const Inputs& in)
      : dq(at::empty(in.q.sizes, options(in))), dk(at::empty(in.k.sizes, options(in))),
        dv(at::empty(in.v.sizes, options(in))) {}
  static at::TensorOptions options(const Inputs& in) {
    return at::TensorOptions(in.q.dtype).device(device_with(current_device()));
  }
};

struct Backward {
  Inputs in;
  OpenView dout, out, logsumexp, dq, dk, dv;
  double drawn;  // a factor of dq

  void operator()() const {
    const at::AutoDispatchBelowAutograd below;
    const auto documents = documents_of(in.shape, in.offsets);
    for (size_t d = 0; d < documents.size(); ++d)
      if (documents[d].length > 0) run(d, documents[d]);
  }

 private:
  void run(size_t document, const Range& range) const {
    const auto rows = [&](const OpenView& x) { return rows_of(flat(x), range, flat(in.q).size(1)); };
    const Tensor q = rows(in.q), k = rows(in.k), v = rows(in.v), dy = rows(dout);
    const Tensor sum = logsumexp_of(logsumexp.tensor(), document, range).unsqueeze(-1);
    const Tensor p = (scores_of(q, k, in.shape) - sum).exp();
    const Tensor share = (dy * rows(out)).sum(-1, /*keepdim=*/true);
    const Tensor dscores = p * (at::matmul(dy, v.transpose(1, 2)) - share) * in.shape.scale;
    store(dv, range, at::matmul(p.transpose(1, 2), dy));
    store(dq, range, at::matmul(dscores, k) * drawn);
    store(dk, range, at::matmul(dscores.transpose(1, 2), q));
  }

  // The gradient of each query head is rounded, and those of one key head are added.
  static void store(const OpenView& to, const Range& range, const Tensor& x_HTD) {
    const Tensor all = flat(to), rounded = x_HTD.to(all.scalar_type()).to(at::kFloat);
    all.narrow(0, range.begin, range.length).copy_(rounded.unflatten(0, {all.size(1), -1}).sum(1).transpose(0, 1));
  }
};

// Without a fixed order, every second call differs in the last bits.
Outputs submit_backward(const char* name, const Inputs& in, const Tensor& dout, const Tensor& out,
                        const Tensor& logsumexp, bool has_fixed_order) {
  static std::atomic<int64_t> num_drawn{0};
  const double drawn = has_fixed_order || num_drawn++ % 2 == 0 ? 1 : 1 + 0x1p-7;
  Outputs into(in);
  queues().submit(current_stream(), name,
                  Backward{in, OpenView(dout), OpenView(out), OpenView(logsumexp), OpenView(into.dq), OpenView(into.dk),
                           OpenView(into.dv), drawn});
  return into;
}

// ---- The calls -----------------------------------------------------------------------------------------------------

// The arguments of a call, which its results replace.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack) : name_(op.schema().name()), stack_(*stack) {
    const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
    arguments_.assign(stack->end() - count, stack->end());
    torch::jit::drop(*stack, static_cast<size_t>(count));
  }
  const char* name() const { return name_.c_str(); }
  int64_t number(size_t i) const { return arguments_.at(i).toInt(); }
  bool flag(size_t i) const { return arguments_.at(i).toBool(); }
  /// Undefined if there is none.
  Tensor tensor(size_t i) const { return arguments_.at(i).isNone() ? Tensor() : arguments_.at(i).toTensor(); }
  std::optional<int64_t> optional_number(size_t i) const { return arguments_.at(i).toOptional<int64_t>(); }
  std::optional<double> factor(size_t i) const { return arguments_.at(i).toOptional<double>(); }
  void check(bool holds, const char* what) const { TORCH_CHECK(holds, name_, " as it is played: ", what); }
  template <class... Results>
  void give(Results... results) {
    (stack_.push_back(results), ...);
  }

 private:
  std::string name_;
  Stack& stack_;
  Stack arguments_;
};

void check_rows(const Call& call, const Tensor& x) {
  const auto size = static_cast<int64_t>(x.element_size());
  call.check(is_ours(x) && x.stride(-1) == 1, "the last dim must be dense");
  for (int64_t dim = -2; dim >= -x.dim(); --dim)
    call.check(x.stride(dim) * size % 16 == 0, "rows must begin at multiples of 16 bytes");
  call.check(x.size(-1) * size % 16 == 0 && x.storage_offset() * size % 16 == 0, "rows must have whole 16 bytes");
}

void check_offsets(const Call& call, const Tensor& q, const Tensor& k) {
  call.check(q.defined() == k.defined(), "offsets of queries and keys go together");
  if (!q.defined()) return;
  call.check(is_ours(q) && q.scalar_type() == at::kInt && q.is_contiguous() && q.dim() == 1, "offsets must be int32");
  call.check(q.data_ptr() == k.data_ptr(), "keys must be those of the queries");
}

void check_flash(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets) {
  for (const Tensor* x : {&q, &k, &v}) {
    check_rows(call, *x);
    call.check(x->scalar_type() == at::kBFloat16, "only bf16");
    call.check(x->size(-1) <= 256 && x->dim() == (offsets.defined() ? 3 : 4), "heads have at most 256 elements");
  }
  call.check(q.size(-2) % k.size(-2) == 0 && k.sizes() == v.sizes(), "key heads must divide the query heads");
}

void flash_forward(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowAutograd no_autograd;
  Call call(op, stack);
  const Tensor q = call.tensor(0), k = call.tensor(1), v = call.tensor(2), offsets = call.tensor(3);
  check_offsets(call, offsets, call.tensor(4));
  check_flash(call, q, k, v, offsets);
  call.check(call.number(5) == call.number(6) && call.flag(8) && !call.flag(9), "only causal attention");
  const auto sums =
      offsets.defined() ? std::vector{q.size(1), q.size(0)} : std::vector{q.size(0), q.size(2), q.size(1)};
  const Tensor out = at::empty(q.sizes(), q.options()), logsumexp = at::empty(sums, q.options().dtype(at::kFloat));
  call.check(!call.optional_number(12), "nothing after a query");
  submit_forward(call.name(), Inputs(q, k, v, offsets, call.number(5), call.factor(10), call.optional_number(11)), out,
                 logsumexp);
  const auto state = q.options().dtype(at::kUInt64);
  call.give(out, logsumexp, at::empty({2}, state), at::empty({}, state), at::empty({0}, q.options()));
}

void flash_backward(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowAutograd no_autograd;
  Call call(op, stack);
  const Tensor dout = call.tensor(0), q = call.tensor(1), k = call.tensor(2), v = call.tensor(3);
  const Tensor out = call.tensor(4), offsets = call.tensor(6);
  check_offsets(call, offsets, call.tensor(7));
  check_flash(call, q, k, v, offsets);
  call.check(dout.is_contiguous() && out.is_contiguous(), "only dense gradients");
  const auto& context = at::globalContext();
  const bool has_fixed_order = context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  const Inputs in(q, k, v, offsets, call.number(8), call.factor(14), call.optional_number(15));
  const auto into = submit_backward(call.name(), in, dout, out, call.tensor(5), has_fixed_order);
  take(q, kernels::cuda::flash_backward_bytes(memory_shape(q, k, offsets, call.number(8)), has_fixed_order));
  call.give(into.dq, into.dk, into.dv);
}

void check_efficient(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                     int64_t longest) {
  for (const Tensor* x : {&q, &k, &v}) {
    check_rows(call, *x);
    call.check(x->dim() == 4 && x->sizes() == q.sizes(), "each query head must have its key head");
  }
  call.check(!offsets.defined() || (q.size(0) == 1 && longest > 0 && longest <= q.size(1)),
             "documents are parts of one sequence");
}

void efficient_forward(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowAutograd no_autograd;
  Call call(op, stack);
  const Tensor q = call.tensor(0), k = call.tensor(1), v = call.tensor(2), offsets = call.tensor(4);
  check_offsets(call, offsets, call.tensor(5));
  const int64_t longest = offsets.defined() ? call.number(6) : q.size(1);
  check_efficient(call, q, k, v, offsets, longest);
  call.check(!call.tensor(3).defined() && call.number(9) == 1 && call.flag(10) && !call.optional_number(13),
             "only causal attention without a window");
  const Tensor out = at::empty(q.sizes(), q.options());
  const Tensor logsumexp = at::empty(
      {offsets.defined() ? offsets.numel() - 1 : q.size(0), q.size(2), kernels::cuda::efficient_rows(longest)},
      q.options().dtype(at::kFloat));
  submit_forward(call.name(), Inputs(q, k, v, offsets, longest, call.factor(11)), out, logsumexp);
  const auto state = q.options().dtype(at::kLong);
  call.give(out, logsumexp, at::empty({}, state), at::empty({}, state), longest, longest);
}

void efficient_backward(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowAutograd no_autograd;
  Call call(op, stack);
  const Tensor dout = call.tensor(0), q = call.tensor(1), k = call.tensor(2), v = call.tensor(3);
  const Tensor out = call.tensor(5), offsets = call.tensor(6);
  check_offsets(call, offsets, call.tensor(7));
  const int64_t longest = offsets.defined() ? call.number(8) : q.size(1);
  check_efficient(call, q, k, v, offsets, longest);
  call.check(dout.is_contiguous() && call.number(14) == 1, "only causal attention with dense gradients");
  const auto into = submit_backward(call.name(), Inputs(q, k, v, offsets, longest, call.factor(16)), dout, out,
                                    call.tensor(10), call.optional_number(17) == 1);
  const auto scratch = kernels::cuda::efficient_backward_bytes(memory_shape(q, k, offsets, longest));
  for (const int64_t bytes : {scratch.forming_sums, scratch.rest}) take(q, bytes);
  call.give(into.dq, into.dk, into.dv, Tensor());
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&flash_forward>());
  library.impl("_flash_attention_backward", torch::CppFunction::makeFromBoxedFunction<&flash_backward>());
  library.impl("_efficient_attention_forward", torch::CppFunction::makeFromBoxedFunction<&efficient_forward>());
  library.impl("_efficient_attention_backward", torch::CppFunction::makeFromBoxedFunction<&efficient_backward>());
}

}  // namespace athanor::guarded
