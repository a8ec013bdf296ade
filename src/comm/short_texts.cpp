#include "comm/short_texts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace athanor::comm {

std::vector<std::string> all_gather_texts(Communicator& all, const std::string& text) {
  constexpr int64_t kLength = 256;  // Linux allows 64 for a host, and the names of processors have 48
  const Tensor own = at::zeros({kLength}, at::kByte), everyone = at::zeros({all.size(), kLength}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), std::min<size_t>(text.size(), kLength - 1));
  all.all_gather(everyone, own).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < all.size(); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(everyone.const_data_ptr<uint8_t>()) + rank * kLength);
  }
  return texts;
}

}  // namespace athanor::comm
