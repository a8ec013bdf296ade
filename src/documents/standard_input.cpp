#include "documents/standard_input.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "documents/selection.h"

namespace athanor::inline documents {

bool is_standard_input(const std::filesystem::path& file) { return file.native() == kStandardInput; }

std::string shown_name(const std::filesystem::path& file) {
  return is_standard_input(file) ? "standard input" : file.string();
}

InputFormat standard_input_format(const std::string& ending) {
  const auto format = input_format("input." + ending);
  ATHANOR_CHECK(
      format && format->kind != InputKind::kParquet,
      "--format {}: expected jsonl (a document in each line), json or txt (one document), each also compressed, as "
      "jsonl.gz or jsonl.zst{}",
      ending, format ? "; Parquet is read from its end and needs a file" : "");
  return *format;
}

void check_standard_input(const std::vector<std::string>& inputs, const DocumentOptions& options) {
  const auto count = std::ranges::count(inputs, kStandardInput);
  if (count == 0) {
    ATHANOR_CHECK(
        !options.standard_input,
        "--format is for standard input (-), which is not among the inputs; the ending of a file's name tells "
        "what it holds");
    return;
  }
  ATHANOR_CHECK(count == 1, "- (standard input) is named {} times, and can be read only once", count);
  ATHANOR_CHECK(options.standard_input,
                "- (standard input) has no name that tells what it holds: add --format jsonl (a document in each "
                "line) or --format txt (all of it is one document)");
  ATHANOR_CHECK(!options.selection || options.selection->options().attributes.empty(),
                "--attributes are found by the documents' file, and - (standard input) has none; name the files");
}

void announce_terminal(const std::string& what) {
  if (::isatty(STDIN_FILENO) == 1) log::info("reading {} from this terminal; Ctrl-D on an empty line ends them", what);
}

}  // namespace athanor::inline documents
