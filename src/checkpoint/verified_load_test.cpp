#include "checkpoint/verified_load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/rotation.h"
#include "checkpoint/testing/random_slices.h"
#include "checkpoint/testing/thread_team.h"

namespace athanor::verified_load_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 600, kColumns = 1000;  // several blocks of a hash
const Shape kShape{kRows, kColumns};
constexpr int64_t kTensorBytes = kRows * kColumns * 4;

/// Returns the rows (dim 0) or columns (dim 1) that one of several members has.
Slice cut(int dim, int member, int members) {
  const int64_t size = kShape[static_cast<size_t>(dim)];
  Shape offset{0, 0}, extent = kShape;
  offset[static_cast<size_t>(dim)] = size * member / members;
  extent[static_cast<size_t>(dim)] = size * (member + 1) / members - size * member / members;
  return box_slice(kShape, offset, extent);
}

float value_of(const std::string& tensor, int64_t position) {
  return static_cast<float>(position) + (tensor == "master/w" ? 0.25F : 0.5F);
}

/// A target with its memory, and what it must hold.
struct Kept {
  std::string tensor;
  Slice slice;
  std::vector<float> values;

  Kept(std::string name, Slice of)
      : tensor(std::move(name)), slice(std::move(of)), values(static_cast<size_t>(slice.num_elements()), -1.0F) {}
  TargetView view() { return {tensor, slice, values.data()}; }
  int64_t num_wrong() const {
    int64_t wrong = 0;
    for (int64_t i = 0; i < slice.num_elements(); ++i)
      wrong += values[static_cast<size_t>(i)] != value_of(tensor, global_position(slice, i)) ? 1 : 0;
    return wrong;
  }
};

class VerifiedLoad : public FolderTest {
 protected:
  /// Writes master/w and exp_avg/w, each cut into `parts` along a dim; `change` may replace an element.
  fs::path save(const std::string& name, int dim, int parts,
                const std::function<void(const std::string& tensor, int64_t position, float&)>& change = {}) {
    std::vector<std::vector<float>> memory;
    std::vector<PieceView> pieces;
    for (const char* tensor : {"master/w", "exp_avg/w"}) {
      for (int part = 0; part < parts; ++part) {
        const Slice slice = cut(dim, part, parts);
        auto& values = memory.emplace_back();
        for (int64_t i = 0; i < slice.num_elements(); ++i) {
          const int64_t position = global_position(slice, i);
          values.push_back(value_of(tensor, position));
          if (change) change(tensor, position, values.back());
        }
        pieces.push_back({tensor, slice, values.data()});
      }
    }
    write_checkpoint(folder_ / name, pieces, {}, {{"name", name}}, {.max_file_bytes = 2'000'000});
    return folder_ / name;
  }
  static std::function<void(const std::string&, int64_t, float&)> put(const char* where, int64_t at, float value) {
    return [=](const std::string& tensor, int64_t position, float& element) {
      if (tensor == where && position == at) element = value;
    };
  }

  /// Loads both tensors cut along a dim for `members`, checks what was loaded, and returns the bytes that all read.
  int64_t bytes_read(const fs::path& path, int dim, int members) {
    std::atomic<int64_t> bytes = 0;
    on_thread_team(members, [&](const Team& team) {
      const auto reader = CheckpointReader::open(path, [&](int64_t amount) { bytes += amount; });
      team.on_all([&] {});
      team.on_first([&] { bytes = 0; });
      Kept master("master/w", cut(dim, team.index, members)), moment("exp_avg/w", cut(dim, team.index, members));
      EXPECT_FALSE(load_verified(reader, {master.view(), moment.view()}, team));
      EXPECT_EQ(master.num_wrong() + moment.num_wrong(), 0) << members;
    });
    return bytes - static_cast<int64_t>(CheckpointReader::open(path).manifest().files.size());  // a file counts 1
  }

  /// Returns the names of the folder's contents and the bytes of its files.
  std::map<std::string, std::string> contents() {
    std::map<std::string, std::string> all;
    for (const auto& each : fs::recursive_directory_iterator(folder_))
      all[each.path().string()] = each.is_regular_file() ? read_file(each.path()) : "";
    return all;
  }
};

TEST_F(VerifiedLoad, TheLayoutThatWroteACheckpointReadsEachByteOnce) {
  for (const int members : {1, 2, 5}) {
    const auto path = save("c" + std::to_string(members), 0, members);
    EXPECT_EQ(bytes_read(path, 0, members), 2 * kTensorBytes) << members;
  }
}

TEST_F(VerifiedLoad, ALayoutWhoseMembersNeedWholePiecesReadsEachByteOnce) {
  const auto path = save("c", 1, 6);
  for (const int members : {1, 2, 3}) EXPECT_EQ(bytes_read(path, 1, members), 2 * kTensorBytes) << members;
}

TEST_F(VerifiedLoad, APieceThatSeveralNeedInPartIsReadWholeByOneOfThem) {
  // In files of 2 MB each tensor is two pieces of rows 0 to 499 and 500 to 599. Of two members, one needs the first 300
  // rows and the other the rest: of the first piece the one that does not hash it reads 300 or 200 rows again.
  const int64_t read = bytes_read(save("c", 0, 1), 0, 2) - 2 * kTensorBytes;
  const std::vector<int64_t> of_a_tensor{200 * kColumns * 4, 300 * kColumns * 4};
  bool found = false;
  for (const int64_t a : of_a_tensor)
    for (const int64_t b : of_a_tensor) found = found || read == a + b;
  EXPECT_TRUE(found) << read;
}

TEST_F(VerifiedLoad, EveryPieceIsHashedOnceByAMemberThatNeedsItMost) {
  RandomSlices random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<float>> memory;
    std::vector<PieceView> written;
    std::map<std::string, Shape> shapes;
    for (const std::string name : {"master/a", "master/b", "exp_avg/a"}) {
      shapes[name] = random.shape();
      for (const auto& slice : random.tiling(shapes[name]))
        written.push_back({name, slice, memory.emplace_back(static_cast<size_t>(slice.num_elements()), 1.0F).data()});
    }
    const auto path = folder_ / std::to_string(round);
    write_checkpoint(path, written, {}, {}, {.max_file_bytes = 64});
    const auto reader = CheckpointReader::open(path);
    const auto& pieces = reader.manifest().pieces;
    const int members = 1 + static_cast<int>(random.below(7));
    std::vector<LoadPlan> plans;
    std::vector<int64_t> claims(pieces.size());
    for (int member = 0; member < members; ++member) {
      std::vector<TargetView> targets;
      for (const auto& [name, shape] : shapes)
        if (random.below(3) > 0) targets.push_back({name, random.slice(shape), nullptr});
      plans.push_back(reader.plan(targets));
      const auto own = claims_of(plans.back(), pieces, member, members);
      for (size_t i = 0; i < claims.size(); ++i) claims[i] = std::max(claims[i], own[i]);
    }
    const auto needed = [&](int member, size_t piece) {
      int64_t count = 0;
      for (const auto& use : plans[static_cast<size_t>(member)].uses) count += use.piece == piece ? use.count : 0;
      return count == 0 ? 0 : count < pieces[piece].num_elements() ? 1 : 2;
    };
    std::vector<int> num_hashes(pieces.size());
    for (int member = 0; member < members; ++member) {
      const auto mine = pieces_to_hash(claims, pieces, member, members);
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (!mine[i]) continue;
        ++num_hashes[i];
        for (int other = 0; other < members; ++other) EXPECT_GE(needed(member, i), needed(other, i)) << i;
      }
    }
    for (const int count : num_hashes) EXPECT_EQ(count, 1);
  }
}

TEST_F(VerifiedLoad, MembersThatNeedTheSamePiecesHashAboutAsManyEach) {
  constexpr int kMembers = 8, kPieces = 4000;
  Manifest manifest;
  const Shape shape{kPieces, 2 * kMembers};
  const auto* tensor = manifest.add_tensor("master/w", shape);
  const auto* file = &*manifest.files.emplace("pieces-00000.safetensors", 1 << 30).first;
  for (int64_t i = 0; i < kPieces; ++i) {
    const Slice row = box_slice(shape, {i, 0}, {1, 2 * kMembers});
    manifest.add_piece(tensor, file, row, 0, {});
  }
  LoadPlan plan;  // a part of each piece
  for (size_t i = 0; i < kPieces; ++i) plan.uses.push_back({i, 0, 0, 2, 2});
  std::vector<int64_t> claims(kPieces);
  for (int member = 0; member < kMembers; ++member) {
    const auto own = claims_of(plan, manifest.pieces, member, kMembers);
    for (size_t i = 0; i < kPieces; ++i) claims[i] = std::max(claims[i], own[i]);
  }
  for (int member = 0; member < kMembers; ++member) {
    const auto mine = pieces_to_hash(claims, manifest.pieces, member, kMembers);
    const auto count = std::count(mine.begin(), mine.end(), true);
    EXPECT_NEAR(static_cast<double>(count), kPieces / kMembers, kPieces / kMembers / 10) << member;
  }
}

TEST_F(VerifiedLoad, DamageInAnyPieceIsNamedOnEveryMemberWhoeverNeedsIt) {
  const auto path = save("c", 1, 5);
  const auto reader = CheckpointReader::open(path);
  for (const Piece& damaged : reader.manifest().pieces) {
    fs::remove_all(folder_ / "d");
    fs::copy(path, folder_ / "d");
    damage_byte(folder_ / "d" / damaged.file_name(), damaged.byte_offset + damaged.num_bytes() - 1);
    for (const int members : {1, 2, 3}) {
      std::vector<std::string> caught(static_cast<size_t>(members));
      on_thread_team(members, [&](const Team& team) {
        const auto copy = CheckpointReader::open(folder_ / "d");
        // The master in part, and of the moments only the last member's.
        Kept master("master/w", cut(0, team.index, members)), moment("exp_avg/w", cut(1, team.index, members));
        std::vector<TargetView> targets{master.view()};
        if (team.index == members - 1) targets.push_back(moment.view());
        caught[static_cast<size_t>(team.index)] = message_of<Error>([&] { load_verified(copy, targets, team); });
      });
      EXPECT_SAYS(caught[0], damaged.file_name() + ": damaged: tensor " + damaged.tensor_name());
      for (const auto& each : caught) EXPECT_EQ(each, caught[0]);
    }
  }
}

TEST_F(VerifiedLoad, FilesOfAnotherLengthAndWithADamagedHeaderAreNamed) {
  const auto path = save("c", 0, 3);
  Kept master("master/w", cut(0, 0, 3));  // needs one file of many
  const auto refusal = [&] {
    return message_of<CheckpointError>([&] { load_verified(CheckpointReader::open(path), {master.view()}); });
  };
  const auto file = path / "pieces-00002.safetensors";
  const auto bytes = read_file(file);
  write_raw(file, bytes + "x");
  EXPECT_SAYS(refusal(), "pieces-00002.safetensors: truncated or changed");
  std::string damaged = bytes;
  damaged[10] = '\x01';  // in the header, which no piece's hash includes
  write_raw(file, damaged);
  EXPECT_SAYS(refusal(), "pieces-00002.safetensors");
  fs::remove(file);
  EXPECT_SAYS(refusal(), "the file pieces-00002.safetensors is missing");
}

TEST_F(VerifiedLoad, TheFirstElementThatIsNotFiniteIsTheSameForAnyLayout) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const auto path = save("c", 1, 4, [&](const std::string& tensor, int64_t position, float& value) {
    if (tensor == "master/w" && position == 2 * kColumns + 990) value = nan;
    if (tensor == "master/w" && position == 3 * kColumns + 10) value = infinity;
    if (tensor == "master/w" && position == kRows * kColumns - 1) value = -infinity;
  });
  for (const int dim : {0, 1}) {
    for (const int members : {1, 2, 3}) {
      on_thread_team(members, [&](const Team& team) {
        Kept master("master/w", cut(dim, team.index, members));
        const auto found = load_verified(CheckpointReader::open(path), {master.view()}, team);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->text(), "element [2, 990] of master/w is nan");
      });
    }
  }
  Kept later("master/w", box_slice(kShape, {3, 0}, {kRows - 3, kColumns})), last("master/w", cut(0, 599, 600));
  EXPECT_EQ(load_verified(CheckpointReader::open(path), {later.view()})->text(), "element [3, 10] of master/w is inf");
  EXPECT_EQ(load_verified(CheckpointReader::open(path), {last.view()})->text(),
            "element [599, 999] of master/w is -inf");
}

TEST_F(VerifiedLoad, MembersThatSeeDifferentCheckpointsAreRefusedTogether) {
  const auto few = save("few", 0, 2), many = save("many", 0, 3);
  on_thread_team(2, [&](const Team& team) {
    const auto reader = CheckpointReader::open(team.is_first() ? few : many);
    const auto refusal = message_of<Error>([&] { load_verified(reader, {}, team); });
    EXPECT_SAYS(refusal, "the first rank sees 4 pieces there and this one 6");
  });
}

TEST_F(VerifiedLoad, WhatIsNotLoadedMayBeAnything) {
  const auto path = save("c", 0, 2, put("exp_avg/w", 5, std::nanf("")));
  Kept master("master/w", cut(0, 0, 1));
  EXPECT_FALSE(load_verified(CheckpointReader::open(path), {master.view()}));
  EXPECT_EQ(master.num_wrong(), 0);
}

class NewestLoad : public VerifiedLoad {
 protected:
  static std::string name(int step) { return step_folder_name(step); }
  void save_bad(int step) { save(name(step), 0, 2, put("exp_avg/w", 7, std::nanf(""))); }
  void damage(int step) {
    const auto reader = CheckpointReader::open(folder_ / name(step));
    const Piece& piece = reader.manifest().pieces.at(1);
    damage_byte(folder_ / name(step) / piece.file_name(), piece.byte_offset);
  }
  /// Returns what two members have loaded: the name that the checkpoint was written with, and which one was put aside.
  std::string loaded(int refuse_step = 0) {
    std::vector<std::string> taken(2);
    on_thread_team(2, [&](const Team& team) {
      Kept moment("exp_avg/w", cut(1, team.index, 2));
      const auto choose = [&](const CheckpointReader& checkpoint) {
        ATHANOR_CHECK(checkpoint.folder().filename() != name(refuse_step), "it does not fit");
        return std::vector{moment.view()};
      };
      auto& own = taken[static_cast<size_t>(team.index)];
      own = message_of_any([&] {
        const auto found = load_newest(folder_, choose, team);
        own = found ? found->checkpoint.state().at("name").get<std::string>() : "none";
        if (found && found->not_finite) own += " without " + found->not_finite->path.filename().string();
        EXPECT_TRUE(!found || moment.num_wrong() == 0);
        return own;
      });
    });
    EXPECT_EQ(taken[0], taken[1]);
    return taken[0];
  }
  static std::string message_of_any(const std::function<std::string()>& act) {
    try {
      return act();
    } catch (const Error& error) {
      return fmt::format("code {}: {}", error.exit_code(), error.what());
    }
  }
};

TEST_F(NewestLoad, ADamagedCheckpointIsPassedOverByAllMembers) {
  for (const int step : {1, 2, 3}) save(name(step), 0, 2);
  EXPECT_EQ(loaded(), name(3));
  damage(3);
  damage_byte(folder_ / name(2) / kManifestName, 300);
  const auto before = contents();
  EXPECT_EQ(loaded(), name(1));
  damage(1);
  EXPECT_EQ(loaded(), "none");
  EXPECT_EQ(before.size(), contents().size());
}

TEST_F(NewestLoad, OneOfANewerFormatRefusesTheLoadSinceItMayBeInOrder) {
  for (const int step : {1, 2, 3}) save(name(step), 0, 2);
  damage(3);
  const fs::path manifest = folder_ / name(2) / kManifestName;
  const auto claim_version = [&](const std::string& from, const std::string& to) {
    std::string body = read_file(manifest);
    body = body.substr(body.find('\n') + 1);
    body.replace(body.find(from), from.size(), to);
    fs::remove(manifest);
    write_file_atomically(manifest, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
  };
  claim_version("\"version\": 1", "\"version\": 2");
  const auto before = contents();
  const std::string refused = loaded();
  EXPECT_SAYS(refused, "code 2: ");
  EXPECT_SAYS(refused,
              name(2) + "/manifest.json: version 2 was written by another athanor; this one reads version 1; ");
  EXPECT_SAYS(refused, "or set checkpoint.resume to an older checkpoint");
  EXPECT_EQ(before, contents());
  claim_version("\"version\": 2", "\"version\": 0");
  EXPECT_EQ(loaded(), name(1)) << "an older format is passed over";
}

TEST_F(NewestLoad, OneThatDoesNotFitRefusesTheLoadEvenIfAnOlderOneWouldFit) {
  for (const int step : {1, 2}) save(name(step), 0, 2);
  EXPECT_EQ(loaded(2), "code 2: it does not fit");
}

TEST_F(NewestLoad, OneThatIsNotFiniteIsPassedOverOnceAndNothingIsRenamed) {
  save(name(1), 0, 2);
  save(name(2), 0, 2);
  save_bad(3);
  auto before = contents();
  EXPECT_EQ(loaded(), name(2) + " without " + name(3));
  EXPECT_EQ(contents(), before);
  damage(2);  // this is passed over as well
  before = contents();
  EXPECT_EQ(loaded(), name(1) + " without " + name(3));
  EXPECT_EQ(contents(), before);
}

TEST_F(NewestLoad, TwoThatAreNotFiniteRefuseTheLoadInOneLineThatNamesBoth) {
  save(name(1), 0, 2);
  save_bad(2);
  save_bad(3);
  const auto before = contents();
  const auto refusal = loaded();
  EXPECT_SAYS(refusal, "code 2: ");
  for (const int step : {2, 3})
    EXPECT_SAYS(refusal,
                name(step) + " is not finite although its hashes are right: element [0, 7] of exp_avg/w is nan");
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
  EXPECT_EQ(contents(), before);
}

TEST_F(NewestLoad, OneThatIsNotFiniteAndHasNoOlderOneRefusesTheLoad) {
  save(name(1), 0, 2);
  damage(1);
  save_bad(3);
  EXPECT_SAYS(loaded(), "there is no older checkpoint that verifies");
}

TEST_F(NewestLoad, DamageInOneThatIsNotFiniteEitherCountsAsDamage) {
  save(name(1), 0, 2);
  save_bad(2);
  damage(2);
  EXPECT_EQ(loaded(), name(1));
}

}  // namespace
}  // namespace athanor::verified_load_test
