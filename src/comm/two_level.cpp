#include "comm/two_level.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace athanor::comm {

struct Hops::State {
  std::vector<std::function<Pending()>> steps;
  size_t next = 0;
  Pending underway;
};

Hops::Hops(std::vector<std::function<Pending()>> steps) : state_(std::make_shared<State>()) {
  state_->steps = std::move(steps);
  if (state_->steps.empty()) return;
  state_->underway = state_->steps[0]();
  state_->next = 1;
}

void Hops::wait() {
  if (!state_) return;
  const auto state = std::move(state_);  // a wait that throws is complete, too
  for (;;) {
    state->underway.wait();
    if (state->next == state->steps.size()) return;
    state->underway = state->steps[state->next++]();
  }
}

namespace {

// A sum of fewer elements goes whole through both all-reduces, which takes two hops instead of three and sends a few
// bytes more.
constexpr int64_t kSmall = 1024;

bool is_narrow(const Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

// The terms of a mean are scaled before they are added, so that their sum is finite. The factor is the power of two
// that is no less than their number, which loses no bits; the rest of the division comes last.
double scale_before(Reduction reduction, int n) {
  return reduction == Reduction::kMean ? 1.0 / static_cast<double>(std::bit_ceil(static_cast<unsigned>(n))) : 1.0;
}
double scale_after(Reduction reduction, int n) {
  return reduction == Reduction::kMean ? static_cast<double>(std::bit_ceil(static_cast<unsigned>(n))) / n : 1.0;
}

void scale(const Tensor& x, double factor) {
  if (factor != 1.0) Tensor(x).mul_(factor);
}

// Returns the sum of rows [lo, hi) along the tree of communicator.h.
Tensor tree_sum(const Tensor& rows, int64_t lo, int64_t hi) {
  if (hi - lo == 1) return rows[lo];
  const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(hi - lo - 1)));
  return tree_sum(rows, lo, lo + half) + tree_sum(rows, lo + half, hi);
}

// The inner hop of a sum: from I parts to this rank's, in the wide type. Narrow parts are sent as they are and added
// here, so that nothing is rounded between the hops.
struct InnerSum {
  Tensor narrow;  // parts of this rank from all, if they are narrow
  Tensor scaled;  // what is sent otherwise
  Tensor sum;

  Pending start(Communicator& inner, const Tensor& in, double factor, Reduction reduction) {
    if (is_narrow(in) && reduction != Reduction::kMax) {
      narrow = at::empty({inner.size(), in.numel() / inner.size()}, in.options());
      return inner.all_to_all(narrow.view(-1), in);
    }
    sum = at::empty({in.numel() / inner.size()}, in.options());
    scaled = factor == 1.0 ? in : in * factor;
    return inner.reduce_scatter(sum, scaled, reduction);
  }
  const Tensor& finish(double factor) {
    if (narrow.defined()) sum = tree_sum(narrow.to(at::kFloat).mul_(factor), 0, narrow.size(0)).contiguous();
    return sum;
  }
};

// The reduction that Communicator gets: means are scaled here.
Reduction plain(Reduction reduction) { return reduction == Reduction::kMean ? Reduction::kSum : reduction; }

// [a, b, width] → [b, a, width]
Tensor transposed(const Tensor& x, int64_t a, int64_t b) { return x.reshape({a, b, -1}).transpose(0, 1).reshape({-1}); }

Hops small_all_reduce(Communicator& inner, Communicator& outer, const Tensor& x, Reduction reduction) {
  const int n = inner.size() * outer.size();
  const Tensor wide = is_narrow(x) ? x.to(at::kFloat) : x;
  scale(wide, scale_before(reduction, n));
  return Hops({[=, &inner] { return inner.all_reduce(wide, plain(reduction)); },
               [=, &outer] { return outer.all_reduce(wide, plain(reduction)); },
               [=] {
                 scale(wide, scale_after(reduction, n));
                 if (!wide.is_same(x)) Tensor(x).copy_(wide);
                 return Pending();
               }});
}

}  // namespace

int TwoLevel::part(PartOrder order) const {
  return order == PartOrder::kFlat ? rank() : inner_.rank() * outer_.size() + outer_.rank();
}

Hops TwoLevel::all_reduce(const Tensor& x, Reduction reduction) {
  if (x.numel() == 0) return {};
  if (x.numel() < kSmall) return small_all_reduce(inner_, outer_, x, reduction);
  const int64_t places = inner_.size(), width = (x.numel() + places - 1) / places;
  const bool padded = width * places != x.numel();
  Tensor all = x.view(-1);
  if (padded) {
    all = at::zeros({width * places}, x.options());
    all.narrow(0, 0, x.numel()).copy_(x.view(-1));
  }
  const double before = scale_before(reduction, size()), after = scale_after(reduction, size());
  const auto sum = std::make_shared<InnerSum>();
  const Tensor mine = all.narrow(0, inner_.rank() * width, width);
  return Hops({[=, this] { return sum->start(inner_, all, before, plain(reduction)); },
               [=, this] { return outer_.all_reduce(sum->finish(before), plain(reduction)); },
               [=, this] {
                 scale(sum->sum, after);
                 Tensor(mine).copy_(sum->sum);
                 return inner_.all_gather(all, mine);
               },
               [=] {
                 if (padded) x.view(-1).copy_(all.narrow(0, 0, x.numel()));
                 return Pending();
               }});
}

Hops TwoLevel::reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction, PartOrder order) {
  ATHANOR_ASSERT(in.numel() == out.numel() * size());
  if (in.numel() == 0) return {};
  const Tensor by_place = order == PartOrder::kFlat ? transposed(in, outer_.size(), inner_.size()) : in.view(-1);
  const double before = scale_before(reduction, size()), after = scale_after(reduction, size());
  const auto sum = std::make_shared<InnerSum>();
  const Tensor mine = at::empty({out.numel()}, in.options().dtype(is_narrow(in) ? at::kFloat : in.scalar_type()));
  const Tensor result = is_narrow(in) && reduction == Reduction::kMax ? at::empty({out.numel()}, in.options()) : mine;
  return Hops({[=, this] { return sum->start(inner_, by_place, before, plain(reduction)); },
               [=, this] { return outer_.reduce_scatter(result, sum->finish(before), plain(reduction)); },
               [=] {
                 scale(result, after);
                 out.view(-1).copy_(result);
                 return Pending();
               }});
}

Hops TwoLevel::all_gather(const Tensor& out, const Tensor& in, PartOrder order) {
  ATHANOR_ASSERT(out.numel() == in.numel() * size());
  if (out.numel() == 0) return {};
  const int64_t outer = outer_.size(), places = inner_.size();
  const bool flat = order == PartOrder::kFlat;
  const Tensor all = flat ? at::empty({out.numel()}, out.options()) : out.view(-1);  // [inner, outer, part]
  const Tensor mine = all.narrow(0, inner_.rank() * outer * in.numel(), outer * in.numel());
  return Hops({[=, this] { return outer_.all_gather(mine, in.view(-1)); },
               [=, this] { return inner_.all_gather(all, mine); },
               [=] {
                 if (flat) out.view(-1).copy_(transposed(all, places, outer));
                 return Pending();
               }});
}

Hops TwoLevel::all_to_all(const Tensor& out, const Tensor& in) {
  ATHANOR_ASSERT(out.numel() == in.numel() && in.numel() % size() == 0);
  if (in.numel() == 0) return {};
  const int64_t outer = outer_.size(), places = inner_.size();
  const Tensor by_place = transposed(in, outer, places);  // [inner target, outer target, part]
  const Tensor at_relay = at::empty_like(by_place);       // [inner source, outer target, part]
  const auto onward = std::make_shared<Tensor>();         // which nothing else keeps until it has been sent
  return Hops({[=, this] { return inner_.all_to_all(at_relay, by_place); },
               [=, this] {
                 *onward = transposed(at_relay, places, outer);
                 return outer_.all_to_all(out.view(-1), *onward);
               }});
}

// Sends rows to ranks in two hops: first inside the group, to the relay with the target's position, then to the other
// group.

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
