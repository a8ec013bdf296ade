#pragma once
// The selection of documents, as a command line gives it and a manifest of prepared data records it.

#include <string>
#include <vector>

namespace athanor::inline config {

struct SelectionOptions {
  std::vector<std::string> attributes;  ///< names of folders in the folder "attributes" (attribute_records.h)
  std::vector<std::string> keep, drop;  ///< expressions (expression.h)
  bool empty() const { return attributes.empty() && keep.empty() && drop.empty(); }
  bool operator==(const SelectionOptions&) const = default;
};

}  // namespace athanor::inline config
