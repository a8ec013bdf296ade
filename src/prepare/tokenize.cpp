#include "prepare/tokenize.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace athanor::inline preparation {
namespace {

// Position of a chunk among all: (file, chunk in the file).
using ChunkKey = std::pair<uint64_t, uint32_t>;

constexpr ChunkKey kNowhere{std::numeric_limits<uint64_t>::max(), 0};

struct Chunk {
  ChunkKey key;
  std::vector<Record> records;
  std::exception_ptr end;  // the error that ended the file after these records
  bool is_last = false;
};

// A file that is being cut; `busy` while one thread cuts it.
struct OpenFile {
  explicit OpenFile(uint64_t file_idx) : index(file_idx) {}
  uint64_t index;
  std::optional<RecordReader> reader;
  uint32_t num_chunks = 0;
  uint64_t progress = 0;
  bool busy = true, over = false;
};

// There is no queue. Each thread takes the next chunk of the first file that no other thread is cutting, or opens the
// next file, and then tokenizes the chunk. So all threads are busy with one large file as well as with many small ones.
class Tokenizing {
 public:
  Tokenizing(const Tokenizer& tokenizer, const TokenizeOptions& options, TokenLedger& ledger, ProgressBar& progress)
      : files_(ledger.files()), tokenizer_(tokenizer), options_(options), ledger_(ledger), progress_(progress),
        skips_(options.documents.on_error), is_special_(tokenizer.vocab_size()) {
    if (options.special_text == SpecialText::kIsText) return;
    for (const uint32_t id : tokenizer.special_ids()) is_special_.at(id) = true;
  }

  bool run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.num_threads; ++i) threads.emplace_back([this] { work(); });
    work();
    for (auto& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return !stopped_;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (OpenFile* file = take_file(lock)) {
      Chunk chunk{{file->index, file->num_chunks++}, {}, nullptr};
      lock.unlock();
      cut(*file, chunk);
      lock.lock();
      file->busy = false;
      if (file->over) open_.remove_if([&](const OpenFile& other) { return &other == file; });
      changed_.notify_all();
      lock.unlock();
      finish(std::move(chunk));
      lock.lock();
    }
    changed_.notify_all();
  }

  // Waits for a file that this thread may cut. Returns none if everything is done, or everything before the first
  // error.
  OpenFile* take_file(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      stopped_ = stopped_ || (options_.stopping && options_.stopping());
      open_.remove_if([&](const OpenFile& f) {
        return !f.busy && (stopped_ || ChunkKey{f.index, f.num_chunks} > failed_at_);
      });
      for (auto& file : open_) {
        if (file.busy) continue;
        file.busy = true;
        return &file;
      }
      if (OpenFile* file = open_next()) return file;
      if (open_.empty()) return nullptr;
      changed_.wait(lock);
    }
  }

  OpenFile* open_next() {
    for (; !stopped_ && next_file_ < files_.size() && ChunkKey{next_file_, 0} < failed_at_; ++next_file_) {
      if (!ledger_.file_finished(next_file_)) return &open_.emplace_back(next_file_++);
      progress_.skip(size_of(next_file_));
    }
    return nullptr;
  }

  // A file of unknown size (a pipe) counts as nothing in the progress bar.
  uint64_t size_of(uint64_t file) const { return static_cast<uint64_t>(std::max<int64_t>(0, files_[file].bytes)); }

  // An error is stored with the records before it, which come first.
  void cut(OpenFile& file, Chunk& chunk) {
    try {
      if (!file.reader) {
        ledger_.begin_file(file.index);
        file.reader.emplace(files_[file.index].path, options_.documents, options_.max_document_bytes);
      }
      for (uint64_t num_bytes = 0; num_bytes < options_.chunk_bytes;) {
        Record record;
        if (file.over = !file.reader->next(record); file.over) break;
        num_bytes += record.num_bytes();
        chunk.records.push_back(std::move(record));
      }
    } catch (...) {
      chunk.end = std::current_exception();
      file.over = true;
    }
    chunk.is_last = file.over;
    const uint64_t position = file.reader ? file.reader->file_position() : 0;
    const uint64_t advance = position - std::exchange(file.progress, position);
    if (ledger_.chunk_done(chunk.key.first, chunk.key.second)) {
      progress_.skip(advance);
    } else {
      progress_.add(advance);
    }
  }

  void finish(Chunk chunk) {
    try {
      if (!ledger_.chunk_done(chunk.key.first, chunk.key.second)) tokenize(chunk);
      if (chunk.is_last) ledger_.end_file(chunk.key.first, chunk.key.second + 1);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (chunk.key < failed_at_) {
        failed_at_ = chunk.key;
        error_ = std::current_exception();
      }
    }
  }

  void tokenize(Chunk& chunk) {
    std::vector<uint32_t> tokens;
    DocumentCounts counts;
    std::unique_lock one_large(large_document_, std::defer_lock);
    for (auto& record : chunk.records) {
      if (record.bytes.size() > options_.shared_document_bytes && !one_large) one_large.lock();
      const auto document = parse(std::move(record), chunk.key.first, counts);
      if (!document) continue;
      if (const auto token = encode(*document, tokens)) note_special(*document, *token, counts);
      ++counts.documents;
      counts.text_bytes += static_cast<int64_t>(document->text.size());
    }
    if (chunk.end) rethrow_unless_skipped(chunk.end, counts);
    ledger_.add_chunk(chunk.key.first, chunk.key.second, tokens, std::move(counts));
  }

  std::optional<Document> parse(Record&& record, uint64_t file, DocumentCounts& counts) {
    const auto& path = files_[file].path;
    try {
      auto document = parse_document(std::move(record), path, options_.documents);
      if (document.dropped_by.empty()) return document;
      ++counts.skipped[std::string(document.dropped_by)];
      return std::nullopt;
    } catch (const DocumentError& error) {
      handle_document_error(error, path, skips_);
      ++counts.skipped[std::string(error.cause())];
      return std::nullopt;
    }
  }

  // Returns the first special token that the text itself has, if any.
  std::optional<uint32_t> encode(const Document& document, std::vector<uint32_t>& tokens) const {
    const auto& [before, after] = options_.around;
    tokens.insert(tokens.end(), before.begin(), before.end());
    const auto first = std::ssize(tokens);
    try {
      tokenizer_.encode_append(document.text, tokens, options_.special_text);
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", document.where, error.what());
    }
    const auto found = std::find_if(tokens.begin() + first, tokens.end(), [&](uint32_t id) { return is_special_[id]; });
    const auto special = found == tokens.end() ? std::nullopt : std::optional(*found);
    tokens.insert(tokens.end(), after.begin(), after.end());
    tokens.push_back(options_.eos_id);
    return special;
  }

  void note_special(const Document& document, uint32_t token, DocumentCounts& counts) {
    ++counts.with_special_tokens;
    if (told_special_.exchange(true)) return;
    log::warn(
        "{}: has the text of the special token {}, which becomes that token{}; further documents are counted; "
        "--split-special-tokens reads it as text",
        document.where, tokenizer_.decode(std::vector<uint32_t>{token}),
        token == options_.eos_id ? " and ends the document there" : "");
  }

  void rethrow_unless_skipped(const std::exception_ptr& error, DocumentCounts& counts) {
    try {
      std::rethrow_exception(error);
    } catch (const DocumentError& document_error) {
      const bool remedy = document_error.cause() == kTooLarge && !options_.large_document_remedy.empty();
      if (remedy) {
        skips_.handle({kTooLarge, std::string(document_error.what()) + "; " + options_.large_document_remedy});
      } else {
        skips_.handle(document_error);
      }
      ++counts.skipped[std::string(document_error.cause())];
    }
  }

  const std::vector<InputFile>& files_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  TokenLedger& ledger_;
  ProgressBar& progress_;
  SkipLog skips_;

  std::vector<bool> is_special_;  // by id; none if special tokens are read as text
  std::atomic<bool> told_special_ = false;
  std::mutex large_document_;  // held while a chunk with a large document becomes tokens
  std::mutex mutex_;           // guards all members below
  std::condition_variable changed_;
  std::list<OpenFile> open_;
  uint64_t next_file_ = 0;
  ChunkKey failed_at_ = kNowhere;  // chunks after it are not begun, those before it are finished
  std::exception_ptr error_;
  bool stopped_ = false;
};

}  // namespace

bool tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options, TokenLedger& ledger,
                    ProgressBar& progress) {
  const bool finished = Tokenizing(tokenizer, options, ledger, progress).run();
  ledger.sync();
  return finished;
}

}  // namespace athanor::inline preparation
