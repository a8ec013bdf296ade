// Members of a team are threads here, which exchange messages through a board.

#include "checkpoint/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "checkpoint/rotation.h"
#include "checkpoint/testing/thread_team.h"

namespace athanor::team_test {
namespace {

namespace fs = std::filesystem;

/// Returns what each of three members caught: "errno 28: ..." for an IoError, else the message.
std::vector<std::string> caught_by_all(const std::function<void(const Team&)>& act) {
  std::vector<std::string> caught(3);
  on_thread_team(3, [&](const Team& team) {
    try {
      act(team);
    } catch (const IoError& error) {
      caught[static_cast<size_t>(team.index)] = fmt::format("errno {}: {}", error.error_number(), error.what());
    } catch (const Error& error) {
      caught[static_cast<size_t>(team.index)] = error.what();
    }
  });
  EXPECT_EQ(caught[0], caught[1]);
  EXPECT_EQ(caught[0], caught[2]);
  return caught;
}

TEST(Team, WhatALibraryThrowsOnOneMemberIsOneErrorOfOursOnAll) {
  const auto on_second = [](auto throwing) {
    return caught_by_all([&](const Team& team) {
      team.on_all([&] {
        if (team.index == 1) throwing();
      });
    })[0];
  };
  const auto on_first = [](auto throwing) {
    return caught_by_all([&](const Team& team) { team.on_first(throwing); })[0];
  };
  const auto full = [] {
    throw fs::filesystem_error("cannot copy", "/x", std::error_code(ENOSPC, std::generic_category()));
  };
  EXPECT_SAYS(on_second(full), fmt::format("errno {}: ", ENOSPC));
  EXPECT_SAYS(on_first(full), fmt::format("errno {}: ", ENOSPC));
  const auto no_memory = [] { throw std::bad_alloc(); };
  EXPECT_SAYS(on_second(no_memory), fmt::format("errno {}: not enough memory", ENOMEM));
  EXPECT_SAYS(on_first(no_memory), fmt::format("errno {}: not enough memory", ENOMEM));
  EXPECT_SAYS(on_second([] { throw std::length_error("too long"); }), "too long");
  EXPECT_SAYS(on_first([] { throw std::length_error("too long"); }), "too long");
  EXPECT_SAYS(on_first([] { throw std::length_error("a path with \xFF in it"); }), "a path with");
}

TEST(Team, AloneItTurnsALibrarysErrorsIntoOursAndLeavesOurs) {
  const Team alone;
  EXPECT_THROW(alone.on_all([] { fs::create_directory("/proc/x/y"); }), IoError);
  EXPECT_THROW(alone.on_first([] { throw std::bad_alloc(); }), IoError);
  EXPECT_THROW(alone.on_first([] { throw CheckpointError("x"); }), CheckpointError);
}

class TeamFolder : public FolderTest {};

TEST_F(TeamFolder, EveryMemberVerifiesAShareBeforeAnOldCheckpointGoesFirst) {
  constexpr int kMembers = 4, kElements = 10'000;
  std::vector<float> values(kElements);
  std::iota(values.begin(), values.end(), 0.5F);
  std::vector<int64_t> noted(kMembers);
  bool tight = false;
  const auto save = [&](int64_t step) {
    on_thread_team(kMembers, [&](const Team& team) {
      RotationOptions options;
      options.team = team;
      options.team.worked = [&noted, &team, &tight](int64_t amount) {
        if (tight) noted[static_cast<size_t>(team.index)] += amount;
      };
      options.write.num_threads = 1;
      options.write.worked = [](int64_t) {};
      options.free_bytes = [&](const fs::path& folder) {
        return tight && list_checkpoints(folder).size() >= 2 ? uint64_t{0} : UINT64_MAX;
      };
      Slice slice = whole_slice({kElements});
      slice.flat_begin = kElements * team.index / kMembers;
      slice.flat_end = kElements * (team.index + 1) / kMembers;
      save_rotating(folder_, step, {{"master/w", slice, values.data() + slice.flat_begin}}, {}, {}, options);
    });
  };
  save(1);
  save(2);
  tight = true;
  save(3);
  EXPECT_EQ(list_checkpoints(folder_).size(), 2u);
  for (const int64_t bytes : noted) EXPECT_GE(bytes, kElements / kMembers * 4);
}

TEST_F(TeamFolder, TheFilesOfManyMembersAreInFoldersOfAFew) {
  constexpr int kMembers = 7;
  std::vector<float> values(700);
  std::iota(values.begin(), values.end(), 0.5F);
  on_thread_team(kMembers, [&](const Team& team) {
    Slice slice = whole_slice({700});
    slice.flat_begin = 100 * team.index;
    slice.flat_end = slice.flat_begin + 100;
    write_checkpoint(folder_ / "c", {{"master/w", slice, values.data() + slice.flat_begin}}, {}, {},
                     {.members_per_folder = 3}, {}, team);
  });
  EXPECT_TRUE(fs::exists(folder_ / "c" / "ranks-000" / "pieces-00002-00000.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "c" / "ranks-002" / "pieces-00006-00000.safetensors"));
  const auto reader = CheckpointReader::open(folder_ / "c");
  reader.verify();
  std::vector<float> read(700);
  reader.load({{"master/w", whole_slice({700}), read.data()}});
  EXPECT_EQ(read, values);
}

TEST_F(TeamFolder, SharesOfAVerificationAreEveryPieceOnce) {
  std::vector<float> values(5'000, 1.0F);
  write_checkpoint(folder_ / "c", {{"master/w", whole_slice({5'000}), values.data()}}, {}, {},
                   {.max_file_bytes = 1000});
  for (const int shares : {1, 3, 7, 100}) {
    for (size_t piece = 0; piece < 20; ++piece) {
      fs::remove_all(folder_ / "d");
      fs::copy(folder_ / "c", folder_ / "d");
      const auto reader = CheckpointReader::open(folder_ / "d");
      ASSERT_EQ(reader.manifest().pieces.size(), 20u);
      const Piece& damaged = reader.manifest().pieces[piece];
      damage_byte(folder_ / "d" / damaged.file_name(), damaged.byte_offset);
      int found = 0;
      for (int share = 0; share < shares; ++share) {
        try {
          reader.verify(share, shares);
        } catch (const CheckpointError&) {
          ++found;
        }
      }
      EXPECT_EQ(found, 1) << piece << " of " << shares;
    }
  }
}

}  // namespace
}  // namespace athanor::team_test
