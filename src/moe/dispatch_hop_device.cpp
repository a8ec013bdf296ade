#include "moe/dispatch_form.h"
#include "ops/device_dispatch.h"

namespace athanor::moe {
namespace {

// With one chunk, both orders of rows are the same, and no order is computed.
class OnDeviceRows : public HopRows {
 public:
  OnDeviceRows(const Tokens& tokens, const PeersOfHop& peers, int64_t room)
      : tokens_{tokens.ids_TK, tokens.chunk_begin, tokens.begins_there}, weights_TK_(tokens.weights_TK), peers_(peers),
        rows_(ops::device_dispatch::sort_rows(tokens_, peers, room)) {}

  void count(const Tensor& counts) override { ops::device_dispatch::count_rows(tokens_, peers_, counts); }

  Tensor pack_choices(const Tensor& counts) override {
    if (in_chunks()) go_order_ = order(counts, rows_.choice_of_row.numel()).by_chunk;
    return ops::device_dispatch::pack_choices(weights_TK_, tokens_.ids_TK, rows_, go_order_);
  }

  void set_numbers(const RowNumbers& go, const RowNumbers& come, const Tensor& counts) override {
    go_begin_ = go.chunk_begin;
    come_begin_ = come.chunk_begin;
    if (!in_chunks()) return;
    go_order_ = go_order_.narrow(0, 0, go_begin_.back());
    come_order_ = order(counts[1], come_begin_.back());
  }

  Tokens unpack_choices(const Tensor& bytes) override {
    const auto [weights_NK, ids_NK] = ops::device_dispatch::unpack_choices(bytes, come_order_.by_chunk);
    return {come_begin_, weights_NK, ids_NK, come_order_.begins};
  }
  Tensor order_of_received() const override { return come_order_.by_chunk; }

  Tensor gather(int64_t chunk, const Tensor& x_TD) override {
    const int64_t first = go_begin_[at(chunk)];
    return ops::device_dispatch::gather_rows(x_TD, rows_, first, go_begin_[at(chunk + 1)] - first);
  }

  void add_up(int64_t chunk, const Tensor& rows, const Tensor& sum_TD) override {
    const int64_t begin = tokens_.chunk_begin[at(chunk)], count = tokens_.chunk_begin[at(chunk + 1)] - begin;
    ops::device_dispatch::sum_rows(rows, rows_.row_of.narrow(0, begin, count), go_begin_[at(chunk)],
                                   sum_TD.narrow(0, begin, count));
  }

  Tensor by_peer(const Tensor& dweights_NK) override {
    return in_chunks() ? dweights_NK.index_select(0, come_order_.by_chunk) : dweights_NK;
  }

  Tensor weight_gradients(const Tensor& rows) override {
    Tensor by_chunk = rows;
    if (in_chunks()) by_chunk = at::empty_like(rows).index_copy_(0, go_order_, rows);
    return ops::device_dispatch::take_weight_gradients(by_chunk, tokens_, peers_, rows_.row_of);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  bool in_chunks() const { return tokens_.num_chunks() > 1; }
  ops::device_dispatch::RowOrder order(const Tensor& counts, int64_t most_rows) const {
    return ops::device_dispatch::order_rows(counts, peers_.count, tokens_.num_chunks(), most_rows);
  }

  ops::device_dispatch::HopTokens tokens_;
  Tensor weights_TK_;
  PeersOfHop peers_;
  ops::device_dispatch::SortedRows rows_;
  std::vector<int64_t> go_begin_, come_begin_;  // by chunk, once they are known
  Tensor go_order_;                             // the place by chunk of each row by peer
  ops::device_dispatch::RowOrder come_order_;
};

}  // namespace

std::unique_ptr<HopRows> DeviceForm::hop_rows(const Tokens& tokens, const PeersOfHop& peers, int64_t room) const {
  return std::make_unique<OnDeviceRows>(tokens, peers, room);
}

}  // namespace athanor::moe
