// Any bytes either are a matrix whose rows can all be read, or are refused with a DataError.

#include <cstring>
#include <vector>

#include "base/error.h"
#include "dataset/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string_view file{reinterpret_cast<const char*>(data), size};
  try {
    const auto header = parse_npy_header(file, "fuzz");
    check_npy_size(header, size, "fuzz");
    const std::vector<char> values(file.begin() + static_cast<std::ptrdiff_t>(header.data_offset), file.end());
    const auto num_bytes = static_cast<uint64_t>(header.num_rows) * static_cast<uint64_t>(header.num_cols) *
                           static_cast<uint64_t>(header.item_bytes);
    if (values.size() != num_bytes) __builtin_trap();
  } catch (const DataError&) {
  }
  return 0;
}
