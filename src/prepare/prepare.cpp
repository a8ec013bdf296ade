#include "prepare/prepare.h"

#include <algorithm>
#include <optional>

#include "base/build_info.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "dataset/npy.h"
#include "documents/standard_input.h"
#include "prepare/gather.h"
#include "prepare/memory_budget.h"
#include "prepare/partial_folder.h"
#include "prepare/prepare_job.h"
#include "prepare/tokenize.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

uint64_t sum_bytes(const std::vector<InputFile>& files) {
  uint64_t total = 0;
  for (const auto& file : files) total += static_cast<uint64_t>(std::max<int64_t>(0, file.bytes));
  return total;
}

class Preparing {
 public:
  Preparing(const PrepareOptions& options, PrepareJob job, PartialFolder& partial)
      : options_(options), job_(std::move(job)), partial_(partial), manifest_(job_.manifest),
        num_threads_(thread_count("--threads", options.num_threads)), input_bytes_(sum_bytes(job_.files)),
        budget_(plan_memory({options.memory_bytes, num_threads_, options.chunk_bytes, table_bytes(),
                             job_.tokenizer.file_name().ends_with(".model"),
                             find_zstd_windows(job_.files, job_.documents)})) {}

  DataManifest run() {
    open();
    try {
      tokenize();
      fault_point("prepare.before_gather");
      shuffle_and_gather();
      commit_finished(options_.out, partial_, manifest_, job_, *journal_);
    } catch (const PrepareStopped&) {
      partial_.keep(can_continue());
      throw;
    } catch (...) {
      keep_what_is_worth_it();
      throw;
    }
    return manifest_;
  }

 private:
  // The size of a pipe is not known: the memory for its chunks is planned for this much text.
  static constexpr uint64_t kPlannedPipeBytes = uint64_t{64} << 30;

  uint64_t table_bytes() const {
    const auto pipes = std::ranges::count_if(job_.files, [](const InputFile& file) { return file.bytes < 0; });
    const uint64_t bytes = input_bytes_ + static_cast<uint64_t>(pipes) * kPlannedPipeBytes;
    return TokenStream::kTableBytes * (job_.files.size() + bytes / options_.chunk_bytes);
  }

  bool reads_standard_input() const {
    return std::ranges::any_of(job_.files, [](const InputFile& file) { return is_standard_input(file.path); });
  }
  // Tokens of standard input are of no use later: the next call cannot know whether it gets the same bytes.
  bool can_continue() const { return job_.files.size() > 1 || !reads_standard_input(); }
  std::string how_to_continue() const {
    if (!can_continue()) return "run the same command again, with standard input from its beginning";
    return fmt::format("run the same command again to continue{}",
                       reads_standard_input() ? ", with standard input from its beginning" : "");
  }

  // Opens the journal and the spill, with the content of an earlier run.
  void open() {
    open_journal();
    const bool is_of_use = stream_->has_spill() || is_gathering(*stream_);
    if (is_of_use) {
      tell_what_is_there();
      return;
    }
    log::info("the inputs have changed since the unfinished run in {}; starting over", partial_.path().string());
    ledger_.reset();
    stream_.reset();
    journal_.reset();
    partial_.clear();
    open_journal();
  }

  void open_journal() {
    stream_.emplace(partial_.path() / "tokens", manifest_.item_bytes());
    journal_.emplace(partial_.journal(), job_.key(options_.chunk_bytes), [this](const SpilledChunk& chunk) {
      return stream_->is_whole(chunk.num_tokens, {chunk.offset, chunk.hash});
    });
    ledger_.emplace(job_.files, *stream_, *journal_);
    stream_->append(0, 0, job_.first_tokens);
    stream_->finish();
  }

  // Without the spill, an earlier run's shards and buckets can be used only for the very same stream.
  bool is_gathering(const TokenStream& stream) const { return stream.digest() == journal_->gathering().stream; }

  void tell_what_is_there() const {
    const auto& gathering = journal_->gathering();
    if (ledger_->text_bytes_before() == 0) return;
    log::info("continuing with {}: {} of {} files, {} of text{}", partial_.path().string(), ledger_->num_files_before(),
              job_.files.size(), format_bytes(static_cast<double>(ledger_->text_bytes_before())),
              gathering.shards.empty() ? "" : fmt::format(", {} shards", gathering.shards.size()));
  }

  // Step 1. Sets the manifest's fields about the inputs.
  void tokenize() {
    check_disk();
    if (reads_standard_input()) announce_terminal("documents");
    TokenizeOptions tokenizing{job_.documents,
                               manifest_.eos_id,
                               manifest_.text_template,
                               manifest_.split_special_tokens ? SpecialText::kIsText : SpecialText::kIsToken,
                               budget_.num_threads,
                               options_.chunk_bytes,
                               budget_.max_document_bytes,
                               budget_.shared_document_bytes,
                               budget_.large_document_remedy(),
                               options_.stopping};
    tokenizing.documents.max_zstd_window = budget_.max_zstd_window;
    ProgressBar progress("tokenizing", input_bytes_, "B");
    if (!tokenize_files(job_.tokenizer, tokenizing, *ledger_, progress))
      throw PrepareStopped("stopped; " + how_to_continue());
    stream_->finish();
    progress.finish();
    const auto counts = ledger_->totals();
    ATHANOR_CHECK_DATA(counts.documents > 0, "no documents in {} files (skipped: {})", job_.files.size(),
                       describe_skips(counts.skipped));
    const auto entries = ledger_->entries();
    manifest_.inputs.insert(manifest_.inputs.end(), entries.begin(), entries.end());
    manifest_.documents += counts.documents;
    manifest_.text_bytes += counts.text_bytes;
    manifest_.tokens += counts.tokens;
    manifest_.special_token_documents += counts.with_special_tokens;
    for (const auto& [cause, count] : counts.skipped) manifest_.skipped[cause] += count;
    manifest_.parts.push_back({static_cast<int64_t>(entries.size()),
                               counts.documents,
                               counts.tokens,
                               counts.text_bytes,
                               {},
                               build_info().version,
                               build_info().commit,
                               {}});
  }

  // The tokens are on the disk twice at the end of gathering. Their number is not known in advance; text has at least
  // some three bytes for each, and decompressed text is three times longer than the file.
  void check_disk() const {
    const uint64_t guess = input_bytes_ / 4 * static_cast<uint64_t>(manifest_.item_bytes());
    const uint64_t free = free_disk_bytes(partial_.path());
    if (2 * guess > free) {
      log::warn("{} of input may need {} of disk while it is prepared, {} has {} left", shown(input_bytes_),
                shown(2 * guess), partial_.path().string(), shown(free));
    }
  }
  static std::string shown(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

  // Steps 2 and 3.
  void shuffle_and_gather() {
    const int64_t seq_len = manifest_.seq_len, num_instances = stream_->num_tokens() / seq_len;
    check_instances(num_instances);
    prepare_data_folder();
    manifest_.remainder_tokens = stream_->num_tokens() % seq_len;
    write_remainder(num_instances * seq_len);
    if (num_instances == 0) return;
    const int64_t num_validation = num_validation_of(num_instances);
    const ShardForm form{seq_len, manifest_.item_bytes(), manifest_.shard_bytes};
    auto places = add_split("train", 0, num_instances - num_validation, form);
    const auto validation = add_split("validation", num_instances - num_validation, num_validation, form);
    places.insert(places.end(), validation.begin(), validation.end());
    const GatherOptions gathering{form,
                                  partial_.path() / "buckets",
                                  partial_.data(),
                                  job_.adds() ? options_.out : fs::path(),
                                  budget_.for_gathering(),
                                  num_threads_,
                                  [this] { check_stop(); }};
    check_disk_for(places, form);
    const Permutation order(static_cast<uint64_t>(num_instances), manifest_.seed, shuffle_name());
    add_hashes(gather(*stream_, order, places, gathering, *journal_), form);
  }

  // Puts the hashes of the part's shards into the manifest, and those of their blocks into a file.
  void add_hashes(const std::map<std::string, FinishedShard>& shards, const ShardForm& form) {
    std::vector<HashWords> blocks;
    for (auto& [name, split] : manifest_.splits) {
      for (auto& file : split.files) {
        const auto shard = shards.find(file.file);
        if (shard == shards.end()) continue;
        file.hash = shard->second.hash;
        blocks.insert(blocks.end(), shard->second.blocks.begin(), shard->second.blocks.end());
      }
    }
    const auto name = fmt::format("checksums-{:05}.npy", manifest_.parts.size() - 1);
    const auto bytes = checksum_file_bytes(blocks);
    write_file_atomically(partial_.data() / name, bytes);
    manifest_.parts.back().checksums = ChecksumEntry{name, hash_hex(bytes), form.block_rows()};
  }

  void check_stop() const {
    if (options_.stopping && options_.stopping()) throw PrepareStopped("stopped; " + how_to_continue());
  }

  // Each part has its own permutation.
  std::string shuffle_name() const {
    const size_t part = manifest_.parts.size() - 1;
    return part == 0 ? "prepare instances" : fmt::format("prepare instances of part {}", part);
  }

  void check_instances(int64_t num_instances) const {
    const int64_t needed = job_.adds() ? 0 : manifest_.validation_fraction > 0 ? 2 : 1;
    ATHANOR_CHECK_DATA(
        num_instances >= needed,
        "{} tokens make {} instances of {}, at least {} is needed; lower --seq-len or give more documents",
        manifest_.tokens, num_instances, manifest_.seq_len, needed);
  }

  // Only files that are whole and belong to this stream may stay: the folder becomes the result.
  void prepare_data_folder() const {
    create_folders(partial_.data());
    const bool is_same = is_gathering(*stream_);
    for (const auto& entry : fs::directory_iterator(partial_.data())) {
      const auto name = entry.path().filename().string();
      const bool stays = journal_->gathering().shards.contains(name) || name.starts_with("remainder-");
      if (!is_same || !stays) remove_tree(entry.path());
    }
  }

  void write_remainder(int64_t first_token) {
    manifest_.remainder.reset();
    const int64_t count = manifest_.remainder_tokens;
    if (count == 0) return;
    const auto name = fmt::format("remainder-{:05}.npy", manifest_.parts.size() - 1);
    const auto file = partial_.data() / name;
    if (stream_->has_spill()) {
      std::vector<std::byte> tokens(static_cast<size_t>(count * manifest_.item_bytes()));
      stream_->copy(first_token, count, tokens.data());
      write_file_atomically(file, npy_header(manifest_.item_bytes(), 1, count) +
                                      std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size()));
    }
    const auto written = fs::exists(file) ? file : options_.out / name;  // a killed run may have moved it already
    manifest_.remainder = RemainderEntry{name, hash_file(written)};
  }

  // Returns the number of instances with which validation has its share of all.
  int64_t num_validation_of(int64_t num_instances) const {
    if (!job_.adds()) return num_validation_instances(num_instances, manifest_.validation_fraction);
    int64_t all = num_instances, validation = 0;
    for (const auto& [name, split] : manifest_.splits) {
      all += split.instances;
      if (name == "validation") validation = split.instances;
    }
    return std::clamp<int64_t>(num_validation_instances(all, manifest_.validation_fraction) - validation, 0,
                               num_instances);
  }

  std::vector<ShardPlace> add_split(const std::string& name, int64_t first_row, int64_t count, const ShardForm& form) {
    if (count == 0) return {};
    auto& split = manifest_.splits[name];
    const auto places = place_shards(name, first_row, count, static_cast<int64_t>(split.files.size()), form);
    for (const auto& place : places) split.files.push_back({place.file, place.num_rows, ""});
    split.instances += count;
    split.tokens += count * manifest_.seq_len;
    manifest_.parts.back().instances[name] = count;
    return places;
  }

  void check_disk_for(const std::vector<ShardPlace>& places, const ShardForm& form) const {
    uint64_t needed = 0;
    for (const auto& place : places) {
      if (!journal_->gathering().shards.contains(place.file)) {
        needed += static_cast<uint64_t>(place.num_rows * form.row_bytes());
      }
    }
    const uint64_t free = free_disk_bytes(partial_.path());
    if (needed <= free || !stream_->has_spill()) return;
    throw IoError(fmt::format("{} has {} left, shuffling needs {}; free some and run the same command again",
                              partial_.path().string(), shown(free), shown(needed)),
                  ENOSPC);
  }

  void keep_what_is_worth_it() {
    const bool worth_it = can_continue() && journal_->text_bytes() >= options_.min_kept_text_bytes;
    partial_.keep(worth_it);
    if (!worth_it) return;
    log::warn("{} of text stay tokenized in {}; correct the following error and {}, or remove it",
              shown(static_cast<uint64_t>(journal_->text_bytes())), partial_.path().string(), how_to_continue());
  }

  const PrepareOptions& options_;
  PrepareJob job_;
  PartialFolder& partial_;
  DataManifest manifest_;
  int num_threads_;
  uint64_t input_bytes_;
  MemoryBudget budget_;
  std::optional<TokenStream> stream_;
  std::optional<PrepareJournal> journal_;
  std::optional<TokenLedger> ledger_;
};

}  // namespace

DataManifest prepare(const PrepareOptions& options) {
  PartialFolder partial(options.out);
  if (options.restart) partial.clear();
  if (const auto finished = finish_committed(options.out, partial)) return *finished;
  // Errors from here on are found before an unfinished run is touched.
  if (fs::exists(partial.journal())) partial.keep();
  auto job = plan_job(options);
  if (job.adds() && job.files.empty()) return job.manifest;
  return Preparing(options, std::move(job), partial).run();
}

}  // namespace athanor::inline preparation
