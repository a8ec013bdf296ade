#pragma once
// Selects the documents to keep, by conditions on their fields and on Dolma's attributes.

#include <atomic>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/selection_options.h"
#include "documents/expression.h"
#include "documents/field_path.h"
#include "documents/record_source.h"

namespace athanor::inline documents {

/// A document is kept if every `keep` holds and no `drop` does. Thread-safe.
class Selection {
 public:
  /// @throws ConfigError naming flag, expression and position; also if there are attributes but no expression.
  explicit Selection(SelectionOptions options);

  const SelectionOptions& options() const { return options_; }

  /// Judges the document in `record` of `file`, whose text is `text`, the value of its field `text_field`.
  /// @return empty if the document is kept; else the condition that dropped it: "dropped by --drop EXPRESSION", which
  ///         lives as long as this object.
  /// @throws DataError if the attributes belong to another document; DocumentError if a row cannot be read, or has a
  ///         value that an expression cannot take. Both name file and line.
  std::string_view judge(const Record& record, std::string_view text, const std::filesystem::path& file,
                         const std::string& text_field) const;

  /// Returns the paths of the fields that must be read from tables in addition to the text (those in attribute files
  /// are not among them).
  std::vector<FieldPath> scalar_paths(const std::string& text_field) const;

  /// Returns the paths that no document had, if any document was judged: most likely they are mistyped.
  std::vector<std::string> paths_never_found() const;

 private:
  struct Filter {
    bool keeps;
    std::string flag, text, name;
    Expression expression;
  };
  struct SeenPath {
    std::vector<std::string> steps;
    std::unique_ptr<std::atomic<bool>> found;
  };

  void add_filter(bool keeps, const std::string& text);
  nlohmann::json read_document(const Record& record, const std::filesystem::path& file) const;
  void add_attributes(const Record& record, const std::filesystem::path& file, nlohmann::json& document) const;
  void note_paths(const nlohmann::json& document, const std::string& text_field) const;

  SelectionOptions options_;
  std::vector<Filter> filters_;
  std::vector<SeenPath> paths_;
  std::vector<std::string> fields_;  // fields of the document's row that are read
  mutable std::atomic<bool> any_judged_ = false;
};

/// Returns null if `options` selects nothing.
std::shared_ptr<const Selection> make_selection(SelectionOptions options);

}  // namespace athanor::inline documents
