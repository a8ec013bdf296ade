#pragma once
// Errors of a document or its file, distinguished by cause so that skipped documents can be counted.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/error.h"

namespace athanor::inline documents {

/// What a bad document does: it ends the reading by an exception, or it is left out and counted.
enum class OnError { kFail, kSkip };

/// Thrown for a document, or the rest of a file, that cannot be read. The message names file and line or byte.
class DocumentError : public DataError {
 public:
  DocumentError(const char* cause, const std::string& message) : DataError(message), cause_(cause) {}
  /// Returns one of the constants below.
  std::string_view cause() const { return cause_; }

 private:
  const char* cause_;
};

inline constexpr const char* kDamagedCompression = "damaged or cut-off compression (the rest of the file)";
inline constexpr const char* kUnsupportedCompression = "compression that is not supported (the rest of the file)";
inline constexpr const char* kOtherContent = "content that the file's name does not tell (the rest of the file)";
inline constexpr const char* kCutOffJson = "JSON array that is cut off (the rest of the file)";
inline constexpr const char* kInvalidJson = "invalid JSON";
inline constexpr const char* kInvalidUtf8 = "invalid UTF-8";
inline constexpr const char* kMissingField = "missing field";
inline constexpr const char* kFieldNotString = "field that is not a string";
inline constexpr const char* kTooLarge = "too large (the rest of the file)";
inline constexpr const char* kDamagedTable = "damaged or cut-off Parquet (the rest of the file)";
inline constexpr const char* kNoTextColumn = "Parquet file without the columns asked for (the rest of the file)";
inline constexpr const char* kBadAttributes = "unreadable row of attributes";
inline constexpr const char* kUnfitValue = "value that an expression cannot take";
inline constexpr const char* kNoDocuments = "file without documents";

/// Number of errors by cause. One that ends the reading of a file counts once.
using SkipCounts = std::map<std::string, int64_t>;

/// Handles each DocumentError: kFail throws it again, kSkip counts it. Thread-safe.
class SkipLog {
 public:
  explicit SkipLog(OnError on_error) : on_error_(on_error) {}
  bool fails() const { return on_error_ == OnError::kFail; }
  /// With kSkip, counts the error, and logs it if it is the first of its cause or ends the reading of a file.
  /// @throws DocumentError with kFail.
  void handle(const DocumentError& error);
  SkipCounts counts() const;

 private:
  OnError on_error_;
  mutable std::mutex mutex_;
  SkipCounts counts_;
};

/// Returns "3 invalid JSON, 1 missing field", for example, or "none".
std::string describe_skips(const SkipCounts& counts);

}  // namespace athanor::inline documents
