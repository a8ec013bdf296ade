#include "ops/device_dispatch.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/routing.h"
#include "ops/device/dispatch_without_kernels.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device_dispatch {
namespace {

namespace cuda = kernels::cuda;
using device::data;
using device::has_kernels;
using device::OnStream;

cuda::TokensOfHop of_kernels(const HopTokens& tokens) {
  return {data<int64_t>(tokens.ids_TK), tokens.num_tokens(), tokens.ids_TK.size(1), tokens.num_chunks(),
          data<int64_t>(tokens.begins_there)};
}

int32_t* packed_data(const Tensor& bytes) { return reinterpret_cast<int32_t*>(data<uint8_t>(bytes)); }

}  // namespace

SortedRows sort_rows(const HopTokens& tokens, const PeersOfHop& peers, int64_t room) {
  const int64_t t = tokens.num_tokens(), n = peers.count, messages = n * tokens.num_chunks();
  const int64_t most = t * std::min(n, tokens.ids_TK.size(1));
  // Rows are counted in half a word, and expert ids are sent in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  ATHANOR_ASSERT(tokens.ids_TK.numel() <= kMost && peers.first_expert + n * peers.experts_per_peer <= kMost);
  if (!has_kernels(tokens.ids_TK)) return without_kernels::sort_rows(tokens, peers, most, room);
  const auto make = [&](int64_t size) { return at::empty({size}, tokens.ids_TK.options()); };
  const SortedRows rows{make(messages + 1), make(most), at::empty({t, n}, tokens.ids_TK.options())};
  const Tensor keys = make(t * n), space = make(cuda::sort_choices_workspace(t, messages));
  const OnStream stream(keys);
  cuda::key_rows(stream, of_kernels(tokens), peers, data<int64_t>(keys));
  cuda::sort_choices(stream, data<int64_t>(keys), t, n, 0, messages, data<int64_t>(rows.offsets),
                     data<int64_t>(rows.choice_of_row), data<int64_t>(rows.row_of), data<int64_t>(space));
  if (room < 0) return rows;
  const int64_t padded = messages * room;
  const Tensor choice_of_row = at::full({padded}, -1, keys.options());
  cuda::spread_rows(stream, data<int64_t>(keys), data<int64_t>(rows.offsets), t, n, room, data<int64_t>(rows.row_of),
                    data<int64_t>(choice_of_row));
  return {at::full({1}, padded, keys.options()), choice_of_row, rows.row_of};
}

void count_rows(const HopTokens& tokens, const PeersOfHop& peers, const Tensor& counts) {
  if (!has_kernels(counts)) return without_kernels::count_rows(tokens, peers, counts);
  cuda::count_rows(OnStream(counts), of_kernels(tokens), peers, data<int64_t>(counts));
}

RowOrder order_rows(const Tensor& counts, int64_t peers, int64_t chunks, int64_t most_rows) {
  if (!has_kernels(counts)) return without_kernels::order_rows(counts, peers, chunks, most_rows);
  const Tensor begins = at::empty({2 * peers * chunks + 1}, counts.options()),
               by_chunk = at::empty({most_rows}, counts.options());
  cuda::order_rows(OnStream(counts), data<int64_t>(counts), peers, chunks, data<int64_t>(begins),
                   data<int64_t>(by_chunk), most_rows);
  return {by_chunk, begins.narrow(0, 0, chunks)};
}

Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK) {
  const int64_t rows = ids_TK.size(0), k = ids_TK.size(1);
  if (!has_kernels(ids_TK)) return without_kernels::pack_choices(weights_TK, ids_TK);
  const Tensor bytes = at::empty({rows, choice_bytes(k)}, ids_TK.options().dtype(at::kByte));
  cuda::pack_choices(OnStream(bytes), data<float>(weights_TK), data<int64_t>(ids_TK), {.most_rows = rows}, k,
                     packed_data(bytes));
  return bytes;
}

Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK, const SortedRows& rows, const Tensor& by_chunk) {
  const int64_t most = rows.choice_of_row.numel(), k = ids_TK.size(1), n = rows.row_of.size(1);
  if (!has_kernels(ids_TK)) {
    return without_kernels::pack_choices(weights_TK, ids_TK, rows, by_chunk);
  }
  const Tensor bytes = at::empty({most, choice_bytes(k)}, ids_TK.options().dtype(at::kByte));
  const int64_t* num_rows = data<int64_t>(rows.offsets) + rows.offsets.numel() - 1;
  cuda::pack_choices(OnStream(bytes), data<float>(weights_TK), data<int64_t>(ids_TK),
                     {data<int64_t>(rows.choice_of_row), n, data<int64_t>(by_chunk), num_rows, most}, k,
                     packed_data(bytes));
  return bytes;
}

Unpacked unpack_choices(const Tensor& bytes, const Tensor& by_chunk) {
  if (!has_kernels(bytes)) return without_kernels::unpack_choices(bytes, by_chunk);
  const int64_t rows = bytes.size(0), k = bytes.size(1) / choice_bytes(1);
  const auto make = [&](at::ScalarType type) { return at::empty({rows, k}, bytes.options().dtype(type)); };
  const Unpacked to{make(at::kFloat), make(at::kLong)};
  cuda::unpack_choices(OnStream(bytes), packed_data(bytes), data<int64_t>(by_chunk), rows, k,
                       data<float>(to.weights_NK), data<int64_t>(to.ids_NK));
  return to;
}

Tensor gather_rows(const Tensor& x_TD, const SortedRows& rows, int64_t first, int64_t count) {
  const Tensor choices = rows.choice_of_row.narrow(0, first, count);
  const int64_t n = rows.row_of.size(1);
  if (!has_kernels(x_TD)) return x_TD.index_select(0, at::div(choices.clamp_min(0), n, "floor"));
  const Tensor out = at::empty({count, x_TD.size(1)}, x_TD.options());
  const int64_t* num_rows = data<int64_t>(rows.offsets) + rows.offsets.numel() - 1;  // in all chunks
  with_element(x_TD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    cuda::gather_rows<T>(OnStream(x_TD), data<T>(x_TD), {data<int64_t>(choices), num_rows, count}, data<T>(out), n,
                         x_TD.size(1));
  });
  return out;
}

void sum_rows(const Tensor& parts, const Tensor& row_of, int64_t first_row, const Tensor& out_TD) {
  if (!has_kernels(parts)) return without_kernels::sum_rows(parts, row_of, first_row, out_TD);
  with_element(parts, [&](auto* from_tag) {
    with_element(out_TD, [&](auto* to_tag) {
      using From = std::decay_t<decltype(*from_tag)>;
      using To = std::decay_t<decltype(*to_tag)>;
      cuda::sum_partials<From, To>(OnStream(parts), data<From>(parts), {data<int64_t>(row_of), first_row, 0},
                                   row_of.size(1), data<To>(out_TD), out_TD.size(0), out_TD.size(1));
    });
  });
}

Tensor take_weight_gradients(const Tensor& rows, const HopTokens& tokens, const PeersOfHop& peers,
                             const Tensor& row_of) {
  if (!has_kernels(rows)) return without_kernels::take_weight_gradients(rows, tokens, peers, row_of);
  const Tensor out_TK = at::empty(tokens.ids_TK.sizes(), rows.options());
  cuda::take_weight_gradients(OnStream(rows), data<float>(rows), of_kernels(tokens), peers, data<int64_t>(row_of),
                              data<float>(out_TK));
  return out_TK;
}

}  // namespace athanor::ops::device_dispatch
