#include "ops/label_draw.h"

#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/label_draw.h"
#include "ops/library_functions.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

int64_t as_signed(uint64_t bits) { return static_cast<int64_t>(bits); }

// A shift that brings in zeros; that of torch repeats the sign.
Tensor shifted(const Tensor& x, int64_t bits) {
  return x.bitwise_right_shift(bits).bitwise_and((int64_t{1} << (64 - bits)) - 1);
}

// kernels::draw_bits of a tensor of counters.
Tensor bits_of(uint64_t key, const Tensor& counters) {
  Tensor z = (counters + 1) * as_signed(0x9E3779B97F4A7C15u) + as_signed(key);
  z = z.bitwise_xor(shifted(z, 30)) * as_signed(0xBF58476D1CE4E5B9u);
  z = z.bitwise_xor(shifted(z, 27)) * as_signed(0x94D049BB133111EBu);
  return z.bitwise_xor(shifted(z, 31));
}

}  // namespace

void draw_labels_into(const LogitsPart& part, const LabelDraw& draw, int64_t vocab_size, const Tensor& largest,
                      const Tensor& ids) {
  if (!on_host(part.logits)) return portable::draw_labels_into(part, draw, vocab_size, largest, ids);
  if (played("draw_labels", {part.logits, part.targets}, {largest, ids})) return;
  const auto* targets = pointer<int64_t>(part.targets);
  auto* values = pointer<float>(largest);
  auto* drawn = pointer<int64_t>(ids);
  with_element(part.logits, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto* logits = pointer<T>(part.logits);
    for_rows(part.rows(), part.width(), [&](int64_t begin, int64_t end) {
      const kernels::DrawRows rows{end - begin, part.width(), draw.first_row + begin, part.first, vocab_size, draw.key};
      kernels::draw_labels(rows, logits + begin * part.width(), targets + begin, values + begin, drawn + begin);
    });
  });
}

Tensor recorded(const LabelDraw& draw, const Tensor& drawn) {
  if (!draw.record) return drawn;
  const int64_t rows = drawn.size(0);
  draw.record->drawn.narrow(0, draw.first_row, rows).copy_(drawn);
  return draw.record->given.defined() ? draw.record->given.narrow(0, draw.first_row, rows) : drawn;
}

Tensor labels_of(const Tensor& logits, const Tensor& targets, const LabelDraw& draw) {
  if (!draw.draws) return targets;
  const Tensor ids = at::empty_like(targets), largest = at::empty(targets.sizes(), logits.options().dtype(at::kFloat));
  draw_labels_into({logits, targets, 0}, draw, logits.size(1), largest, ids);
  return recorded(draw, ids);
}

namespace portable {

void draw_labels_into(const LogitsPart& part, const LabelDraw& draw, int64_t vocab_size, const Tensor& largest,
                      const Tensor& ids) {
  const Tensor has_target = part.has_target();
  if (part.width() == 0) {
    largest.fill_(-std::numeric_limits<double>::infinity());
    ids.copy_(at::where(has_target, part.first, kernels::kNoTarget));
    return;
  }
  const auto options = part.targets.options();
  const Tensor row = at::arange(draw.first_row, draw.first_row + part.rows(), options).unsqueeze(1),
               id = at::arange(part.first, part.first + part.width(), options);
  const Tensor upper = shifted(bits_of(draw.key, row * vocab_size + id), 32).to(at::kDouble);
  start_library_functions();
  const Tensor exponential = -((upper + 0.5) * -0x1p-32).log1p();
  const auto [value, column] = (part.logits.to(at::kDouble) - exponential.log()).max(1);
  largest.copy_(at::where(has_target, value, -std::numeric_limits<double>::infinity()));
  ids.copy_(at::where(has_target, column + part.first, kernels::kNoTarget));
}

}  // namespace portable
}  // namespace athanor::ops
