#include "comm/short_texts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace athanor::comm {

std::vector<std::string> all_gather_texts(Communicator& all, const std::string& text, int64_t room) {
  const Tensor own = at::zeros({room}, at::kByte), everyone = at::zeros({all.size(), room}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), std::min(text.size(), static_cast<size_t>(room) - 1));
  all.all_gather(everyone, own).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < all.size(); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(everyone.const_data_ptr<uint8_t>()) + rank * room);
  }
  return texts;
}

}  // namespace athanor::comm
