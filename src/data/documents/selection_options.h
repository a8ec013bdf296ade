#pragma once
// Which documents are kept, as it is typed and recorded.

#include <string>
#include <vector>

namespace athanor {

struct SelectionOptions {
  std::vector<std::string> attributes;  ///< names of folders beside "documents" (attribute_records.h)
  std::vector<std::string> keep, drop;  ///< expressions (expression.h)
  bool empty() const { return attributes.empty() && keep.empty() && drop.empty(); }
  bool operator==(const SelectionOptions&) const = default;
};

}  // namespace athanor
