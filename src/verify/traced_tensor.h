#pragma once
// A tensor that a trace knows by its hash alone: a copy that several ranks hold (verify/trace.h), and every tensor of a
// step (smoke/smoke_trace.h).

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace athanor::inline verify {

struct TracedTensor {
  int64_t step = 0;
  std::string phase, name;
  std::string shape;  ///< "4x64x128"; "1" for a number
  std::string type;   ///< "float32", "bfloat16", …
  std::string hash;   ///< hash of the bytes, row-major (base/hash.h)

  bool operator==(const TracedTensor&) const = default;
};

/// Writes and reads it as the list of its members: [3, "forward.0", "model.norm", "4x64x128", "float32", HASH].
/// @throws nlohmann::json::exception if the value is no such list.
inline void to_json(nlohmann::json& json, const TracedTensor& tensor) {
  json = {tensor.step, tensor.phase, tensor.name, tensor.shape, tensor.type, tensor.hash};
}
inline void from_json(const nlohmann::json& json, TracedTensor& tensor) {
  tensor.step = json.at(0).get_ref<const int64_t&>();
  json.at(1).get_to(tensor.phase), json.at(2).get_to(tensor.name), json.at(3).get_to(tensor.shape);
  json.at(4).get_to(tensor.type), json.at(5).get_to(tensor.hash);
}

}  // namespace athanor::inline verify
