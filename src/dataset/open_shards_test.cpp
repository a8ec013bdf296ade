#include "dataset/open_shards.h"

#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::open_shards_test {
namespace {

class Shards : public FolderTest {
 protected:
  std::string shard(int i) const {
    return write("s" + std::to_string(i), npy_header(2, 1, 2) + std::string(4, static_cast<char>('a' + i))).string();
  }
  static char first_of(const NpyMatrix& matrix) {
    std::byte row[4];
    matrix.read_row(0, row);
    return static_cast<char>(row[0]);
  }
  static size_t num_files() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  }
};

TEST_F(Shards, OnlyTheOnesReadLastStayOpen) {
  OpenShards shards(3);
  const size_t before = num_files();
  std::map<std::string, int> opened;
  const auto read = [&](int i) {
    const auto path = shard(i);
    return first_of(*shards.get(path, [&] {
      ++opened[path];
      return NpyMatrix::open(path);
    }));
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(read(i), 'a' + i);
  EXPECT_EQ(shards.num_open(), 3u);
  EXPECT_EQ(num_files(), before + 3);
  read(7), read(8), read(9), read(7), read(0), read(7);
  EXPECT_EQ(opened.at(shard(7)), 1);
  EXPECT_EQ(opened.at(shard(0)), 2);
}

TEST_F(Shards, AShardThatIsHeldStaysReadableWhenOthersTakeItsPlace) {
  OpenShards shards(1);
  const auto open = [&](int i) {
    const auto path = shard(i);
    return shards.get(path, [&] { return NpyMatrix::open(path); });
  };
  const auto held = open(0);
  open(1);
  EXPECT_EQ(first_of(*held), 'a');
}

TEST_F(Shards, WhereTheSystemHasNoMoreFilesIdleOnesAreClosed) {
  OpenShards shards(100);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) paths.push_back(shard(i));
  rlimit low = limit;
  low.rlim_cur = num_files() + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(first_of(*shards.get(paths[static_cast<size_t>(i)],
                                   [&] { return NpyMatrix::open(paths[static_cast<size_t>(i)]); })),
              static_cast<char>('a' + i));
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(Shards, ManyThreadsReadMoreShardsThanMayBeOpen) {
  OpenShards shards(2);
  std::vector<std::string> paths;
  for (int i = 0; i < 8; ++i) paths.push_back(shard(i));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto at = static_cast<size_t>((i * (t + 1)) % 8);
        EXPECT_EQ(first_of(*shards.get(paths[at], [&] { return NpyMatrix::open(paths[at]); })),
                  'a' + static_cast<int>(at));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(shards.num_open(), 2u);
}

}  // namespace
}  // namespace athanor::open_shards_test
