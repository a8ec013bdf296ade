// Any bytes either parse, and then every tensor can be read whole, or are refused with a CheckpointError.

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  try {
    const auto file = SafetensorsFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const auto& [name, entry] : file.tensors()) {
      const auto bytes = file.data(name);
      if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xA5}; })) continue;
      std::vector<float> values(bytes.size() / dtype_size(entry.dtype));
      file.read_floats(name, 0, values);
    }
  } catch (const CheckpointError&) {
  }
  return 0;
}
