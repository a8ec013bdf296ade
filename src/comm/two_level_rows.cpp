// Sends rows to ranks in two hops: first inside the group, to the relay with the target's position, then to the other
// group.

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "comm/two_level.h"

namespace athanor::comm {
namespace {

using Counts = std::vector<int64_t>;

int64_t total(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

// Returns the sums over b of counts in a grid [a][b].
Counts sums_of_rows(const Counts& grid, size_t b) {
  Counts sums;
  for (size_t first = 0; first < grid.size(); first += b) sums.push_back(total({grid.data() + first, b}));
  return sums;
}

Counts transposed(const Counts& grid, size_t a, size_t b) {
  Counts result;
  for (size_t j = 0; j < b; ++j) {
    for (size_t i = 0; i < a; ++i) result.push_back(grid[i * b + j]);
  }
  return result;
}

// Returns where each cell of [a][b] begins if cells are stored in the order [b][a].
Counts transposed_begins(const Counts& grid, size_t a, size_t b) {
  Counts begins(grid.size());
  std::exclusive_scan(grid.begin(), grid.end(), begins.begin(), int64_t{0});
  return transposed(begins, a, b);
}

// Reorders the rows of x from [a][b] to [b][a].
Tensor transposed_rows(const Tensor& x, const Counts& grid, size_t a, size_t b) {
  if (a == 1 || b == 1) return x;
  const Counts begins = transposed_begins(grid, a, b), counts = transposed(grid, a, b);
  std::vector<Tensor> pieces;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) pieces.push_back(x.narrow(0, begins[i], counts[i]));
  }
  return pieces.empty() ? x : at::cat(pieces);
}

// Does the same for a list of rows of x.
Tensor listed_rows(const Tensor& x, std::span<const int64_t> row_ids, const Counts& grid, size_t a, size_t b) {
  const Counts begins = transposed_begins(grid, a, b), counts = transposed(grid, a, b);
  const Tensor ids = at::empty({static_cast<int64_t>(row_ids.size())}, at::kLong);
  auto* next = ids.data_ptr<int64_t>();
  for (size_t i = 0; i < counts.size(); ++i) next = std::copy_n(row_ids.data() + begins[i], counts[i], next);
  return x.index_select(0, ids.to(x.device()));
}

Tensor rows_like(const Tensor& x, int64_t rows) {
  auto shape = x.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, x.options());
}

struct Route {
  Counts out_rows, in_rows;
  Tensor sent_counts, relayed_counts;  // [inner target, outer target], [inner source, outer target]
  Tensor at_relay, onward;             // what arrives at this rank, and the same in the order in which it is sent on
};

}  // namespace

Hops TwoLevel::all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                          std::span<const int64_t> in_rows) {
  ATHANOR_ASSERT(in.size(0) == total(in_rows));
  const auto outer = static_cast<size_t>(outer_.size()), places = static_cast<size_t>(inner_.size());
  const Counts grid(in_rows.begin(), in_rows.end());
  return send_by_place(out, transposed_rows(in, grid, outer, places), out_rows, in_rows);
}

Hops TwoLevel::all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                          std::span<const int64_t> in_rows, std::span<const int64_t> row_ids) {
  ATHANOR_ASSERT(static_cast<int64_t>(row_ids.size()) == total(in_rows));
  const auto outer = static_cast<size_t>(outer_.size()), places = static_cast<size_t>(inner_.size());
  const Counts grid(in_rows.begin(), in_rows.end());
  return send_by_place(out, listed_rows(in, row_ids, grid, outer, places), out_rows, in_rows);
}

Hops TwoLevel::send_by_place(const Tensor& out, const Tensor& by_place, std::span<const int64_t> out_rows,
                             std::span<const int64_t> in_rows) {
  const auto outer = static_cast<size_t>(outer_.size()), places = static_cast<size_t>(inner_.size());
  ATHANOR_ASSERT(in_rows.size() == outer * places && out_rows.size() == in_rows.size());
  ATHANOR_ASSERT(out.size(0) == total(out_rows));
  const auto route = std::make_shared<Route>();
  route->out_rows.assign(out_rows.begin(), out_rows.end());
  route->in_rows = transposed({in_rows.begin(), in_rows.end()}, outer, places);
  // The host reads counts, on any device; a group of a device's backend takes only the device's tensors.
  route->sent_counts = at::tensor(route->in_rows, at::kLong).to(by_place.device());
  route->relayed_counts = at::empty_like(route->sent_counts);
  return Hops({[=, this] { return inner_.all_to_all(route->relayed_counts, route->sent_counts); },
               [=, this] {
                 const Tensor counts = route->relayed_counts.cpu();
                 const auto* first = counts.const_data_ptr<int64_t>();
                 const Counts sent = sums_of_rows(route->in_rows, outer);
                 const Counts received = sums_of_rows({first, first + counts.numel()}, outer);
                 route->at_relay = rows_like(by_place, total(received));
                 return inner_.all_to_all(route->at_relay, by_place, received, sent);
               },
               [=, this] {
                 const Tensor counts = route->relayed_counts.cpu();
                 const auto* first = counts.const_data_ptr<int64_t>();
                 const Counts relayed(first, first + counts.numel());
                 const Counts sent = sums_of_rows(transposed(relayed, places, outer), places);
                 const Counts received = sums_of_rows(route->out_rows, places);
                 route->onward = transposed_rows(route->at_relay, relayed, places, outer);
                 return outer_.all_to_all(out, route->onward, received, sent);
               }});
}

std::vector<int64_t> TwoLevel::exchange_rows(std::span<const int64_t> in_rows) {
  ATHANOR_ASSERT(static_cast<int>(in_rows.size()) == size());
  const Tensor sent = at::tensor(at::IntArrayRef(in_rows.data(), in_rows.size()), at::kLong),
               received = at::empty_like(sent);
  all_to_all(received, sent).wait();
  const auto* first = received.const_data_ptr<int64_t>();
  return {first, first + received.numel()};
}

}  // namespace athanor::comm
