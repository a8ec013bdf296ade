#include "dataset/block_cache.h"

namespace athanor::inline dataset {

BlockCache::Found BlockCache::find(const std::string& shard, int64_t block) {
  const std::lock_guard lock(mutex_);
  const auto kept = kept_.find({shard, block});
  if (kept != kept_.end()) {
    newest_first_.splice(newest_first_.begin(), newest_first_, kept->second);
    return {kept->second->bytes, true};
  }
  const auto known = verified_.find(shard);
  const auto at = static_cast<size_t>(block);
  return {nullptr, known != verified_.end() && at < known->second.size() && known->second[at]};
}

void BlockCache::add(const std::string& shard, int64_t block, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  auto& verified = verified_[shard];
  const auto at = static_cast<size_t>(block);
  if (verified.size() <= at) verified.resize(at + 1);
  verified[at] = true;
  const Key key{shard, block};
  if (kept_.contains(key)) return;  // two threads have read it
  num_bytes_ += bytes->size();
  newest_first_.push_front({key, std::move(bytes)});
  kept_[key] = newest_first_.begin();
  while (num_bytes_ > most_bytes_ && newest_first_.size() > 1) {
    num_bytes_ -= newest_first_.back().bytes->size();
    kept_.erase(newest_first_.back().key);
    newest_first_.pop_back();
  }
}

}  // namespace athanor::inline dataset
