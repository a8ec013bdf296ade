#include "parallel/share.h"

#include <algorithm>

namespace athanor::inline parallel {
namespace {

Tensor text_tensor(int64_t size) { return at::empty({size}, at::kByte); }

void finish(const std::function<void(comm::Pending& pending)>& wait, comm::Pending pending) { wait(pending); }

int64_t size_of(const std::string& text) { return static_cast<int64_t>(text.size()); }

}  // namespace

void share_from_first(comm::Communicator& ranks, const Tensor& x, SharedBy how) {
  if (ranks.size() == 1 || x.numel() == 0) return;
  ATHANOR_ASSERT(x.is_contiguous() && x.nbytes() % sizeof(int64_t) == 0);
  // The data are sent as integers, so that no bit pattern is a number to be rounded.
  const Tensor bits =
      at::from_blob(x.data_ptr(), {static_cast<int64_t>(x.nbytes() / sizeof(int64_t))}, x.options().dtype(at::kLong));
  if (how == SharedBy::kBroadcast) {
    ranks.broadcast(bits, 0).wait();
  } else {
    if (ranks.rank() != 0) bits.zero_();
    ranks.all_reduce(bits).wait();
  }
}

std::string broadcast_text(comm::Communicator& ranks, const std::string& text,
                           const std::function<void(comm::Pending& pending)>& wait, int root) {
  if (ranks.size() == 1) return text;
  const Tensor size = at::full({1}, size_of(text), at::kLong);
  finish(wait, ranks.broadcast(size, root));
  const Tensor bytes = text_tensor(size.item<int64_t>());
  if (ranks.rank() == root) text.copy(static_cast<char*>(bytes.data_ptr()), text.size());
  if (bytes.numel() > 0) finish(wait, ranks.broadcast(bytes, root));
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel())};
}

std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& text,
                                      const std::function<void(comm::Pending& pending)>& wait) {
  if (ranks.size() == 1) return {text};
  const Tensor sizes = at::empty({ranks.size()}, at::kLong);
  finish(wait, ranks.all_gather(sizes, at::full({1}, size_of(text), at::kLong)));
  // Rows of one byte: all go to the first rank, none to the others.
  const auto n = static_cast<size_t>(ranks.size());
  std::vector<int64_t> to(n, 0), from(n, 0);
  to[0] = size_of(text);
  int64_t total = 0;
  if (ranks.rank() == 0) {
    from.assign(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + sizes.numel());
    for (const int64_t size : from) total += size;
  }
  const Tensor own = text_tensor(size_of(text)), all = text_tensor(total);
  text.copy(static_cast<char*>(own.data_ptr()), text.size());  // memcpy takes no null, which an empty tensor has
  finish(wait, ranks.all_to_all(all, own, from, to));
  std::vector<std::string> texts;
  const auto* at = static_cast<const char*>(all.data_ptr());
  for (size_t i = 0; ranks.rank() == 0 && i < n; at += from[i++]) texts.emplace_back(at, static_cast<size_t>(from[i]));
  return texts;
}

std::string first_of_any(comm::Communicator& ranks, const std::string& text) {
  const auto texts = gather_texts(ranks, text);
  const auto found = std::ranges::find_if(texts, [](const std::string& each) { return !each.empty(); });
  return broadcast_text(ranks, found == texts.end() ? "" : *found);
}

}  // namespace athanor::inline parallel
