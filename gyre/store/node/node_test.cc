// What a store's node builds on: who owns a chunk, what a chunk's file proves, and that a chunk is fetched once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/catalog.h"
#include "gyre/store/node/chunk_cipher.h"
#include "gyre/store/node/chunk_file.h"
#include "gyre/store/node/chunk_files.h"
#include "gyre/store/node/flights.h"
#include "gyre/store/node/members.h"
#include "gyre/store/node/reading.h"
#include "gyre/store/sources/text.h"

namespace gyre::store::node {
namespace {

namespace fs = std::filesystem;

ChunkKey key_of(std::uint64_t number) {
  ChunkKey key;
  Random random(number);
  for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random.next_u32());
  return key;
}

Members members_of(const std::vector<std::uint32_t>& ids) {
  Members members;
  for (const std::uint32_t id : ids) members.nodes.push_back({.id = id, .endpoint = "tcp:127.0.0.1:1"});
  return members;
}

Bytes random_bytes(std::size_t size) {
  Bytes bytes(size);
  Random random(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  return bytes;
}

Catalog catalog_of(const std::vector<std::uint64_t>& sizes) {
  Listing listing{.source = "here", .objects = {}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    listing.objects.push_back({.name = "o" + std::to_string(1'000 + i), .size_bytes = sizes[i], .version = "v"});
  }
  std::vector<Listing> listings;
  listings.push_back(std::move(listing));
  return Catalog(make_manifest(std::move(listings), Inflation::kNone));
}

/// A folder of chunks, removed at the end.
class Folder {
 public:
  explicit Folder(std::shared_ptr<const ChunkSecret> secret = nullptr)
      : root_(fs::temp_directory_path() / ("gyre-chunks-" + std::to_string(::getpid()) + "-" +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        chunks(root_ / "store", std::move(secret)) {
    lock_ = chunks.take();
  }
  ~Folder() { fs::remove_all(root_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

 private:
  fs::path root_;
  UniqueFd lock_;

 public:
  const ChunkFolder chunks;
};

TEST(Members, owners_are_spread_evenly_and_only_a_lost_nodes_chunks_move) {
  // Otherwise a node that comes or goes would have the whole set fetched anew.
  const Members four = members_of({0, 1, 2, 7});
  const Members three = members_of({0, 2, 7});
  std::map<std::uint32_t, int> owned;
  for (std::uint64_t i = 0; i < 4'000; ++i) {
    const ChunkKey key = key_of(i);
    std::vector<std::uint32_t> before = four.order(key);
    ++owned[before.front()];
    EXPECT_TRUE(four.owned_by(before.front(), key));
    EXPECT_FALSE(four.owned_by(before.back(), key));
    std::erase(before, 1);
    EXPECT_EQ(before, three.order(key));
  }
  for (const auto& [id, count] : owned) EXPECT_NEAR(count, 1'000, 120) << "node " << id;
}

TEST(Members, only_a_later_epoch_is_adopted) {
  int changes = 0;
  Membership membership(members_of({0, 1}), [&] { ++changes; });
  Members next = parse_members("3=tcp:[::1]:9,0=tcp:host:7", 2);
  EXPECT_EQ(Members::decode(next.encode()), next);
  EXPECT_FALSE(membership.adopt(parse_members("5=tcp:host:7", 1))) << "another command line's";
  EXPECT_TRUE(membership.adopt(next));
  EXPECT_FALSE(membership.adopt(next));
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(to_string(*membership.now()), "0=tcp:host:7,3=tcp:[::1]:9");
  EXPECT_FALSE(membership.adopt_next(parse_members("0=tcp:a:1", 2))) << "made of a list that is replaced";
  EXPECT_FALSE(membership.adopt_next(parse_members("0=tcp:a:1", 4)));
  EXPECT_THROW(parse_members("0=tcp:a:1,0=tcp:b:2", 1), Error);
  EXPECT_THROW(parse_members("tcp:a:1", 1), Error);
}

TEST(Members, of_two_lists_of_one_epoch_all_nodes_take_the_same) {
  // Else two nodes that were changed at the same time would never agree.
  const Members one = parse_members("0=tcp:a:1", 2);
  const Members other = parse_members("0=tcp:b:1", 2);
  Membership first(members_of({0}), [] {});
  Membership second(members_of({0}), [] {});
  for (const Members& list : {one, other}) first.adopt(list);
  for (const Members& list : {other, one}) second.adopt(list);
  EXPECT_EQ(*first.now(), *second.now());
}

TEST(Catalog, its_chunks_cover_each_object_once) {
  const std::uint64_t mib = 1 << 20;
  const Catalog catalog = catalog_of({0, 1, 64 * mib, 64 * mib + 1, 160 * mib + 5});
  std::set<std::string> keys;
  for (std::size_t entry = 0; entry < 5; ++entry) {
    std::uint64_t at = 0;
    for (std::uint32_t number = 0; number < catalog.chunks_of(entry); ++number) {
      const Piece chunk = catalog.chunk(entry, number);
      EXPECT_EQ(chunk.offset_bytes, at);
      if (chunk.size_bytes > 0) {
        EXPECT_EQ(catalog.chunk_at(entry, at).number, number);
        EXPECT_EQ(catalog.chunk_at(entry, at + chunk.size_bytes - 1).number, number);
      }
      at += chunk.size_bytes;
      EXPECT_TRUE(keys.insert(catalog.key(chunk).hex()).second);
    }
    EXPECT_EQ(at, catalog.manifest().entries[entry].object.size_bytes);
    EXPECT_THROW(static_cast<void>(catalog.chunk(entry, catalog.chunks_of(entry))), Error);
  }
  const Catalog copy = Catalog::decode(catalog.encode());
  EXPECT_EQ(copy.fingerprint(), catalog.fingerprint());
  EXPECT_EQ(copy.find("o1003"), 3U);
  EXPECT_EQ(copy.find("o"), std::nullopt);
  const Bytes encoded = catalog.encode();
  EXPECT_THROW(static_cast<void>(Catalog::decode(std::span(encoded).first(encoded.size() - 1))), Error);
}

// By what a listing says of an object it is decompressed and compared, also where it is read from the store.
TEST(Catalog, says_of_an_object_what_its_listing_says) {
  std::vector<Listing> listings;
  listings.push_back({.source = "here",
                      .objects = {{.name = "a", .size_bytes = 3, .version = "v", .encoding = "gzip"},
                                  {.name = "b", .size_bytes = 4, .md5 = Md5{std::byte{7}}},
                                  {.name = "c"}}});
  const Catalog catalog(make_manifest(std::move(listings), Inflation::kNone));
  const Catalog copy = Catalog::decode(catalog.encode());
  ASSERT_EQ(copy.manifest().entries.size(), 3U);
  for (std::size_t entry = 0; entry < 3; ++entry)
    EXPECT_EQ(copy.manifest().entries[entry], catalog.manifest().entries[entry]);
}

std::shared_ptr<const ChunkSecret> some_secret(std::uint64_t number) {
  Random random(number);
  SecretKey secret;
  for (std::byte& byte : secret) byte = static_cast<std::byte>(random.next_u32());
  return std::make_shared<const ChunkSecret>(secret);
}

class ChunkFileOf : public testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<const ChunkSecret> secret() { return GetParam() ? some_secret(1) : nullptr; }
};

INSTANTIATE_TEST_SUITE_P(ChunkFile, ChunkFileOf, testing::Bool(), [](const testing::TestParamInfo<bool>& encrypted) {
  return encrypted.param ? "an_encrypted_store" : "a_plain_store";
});

TEST_P(ChunkFileOf, every_range_is_read_and_every_flipped_bit_is_found) {
  // A byte may be wrong on the disk for any reason: it must never reach a reader.
  const Folder folder(secret());
  const Bytes bytes = random_bytes(200'000);
  const ChunkKey key = key_of(1);
  folder.chunks.write(key, bytes);
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t from = random.below(bytes.size() + 1);
    Bytes part(random.below(bytes.size() - from + 1));
    const auto file = ChunkFile::open(folder.chunks, key, bytes.size());
    ASSERT_TRUE(file);
    file->read(from, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(bytes).subspan(from, part.size())));
  }
  const fs::path path = folder.chunks.file_of(key);
  const auto whole_is_read = [&] {
    Bytes all(bytes.size());
    const auto file = ChunkFile::open(folder.chunks, key, bytes.size());
    file->read(0, all);
    EXPECT_EQ(all, bytes);
  };
  const std::uint64_t file_bytes = fs::file_size(path);
  for (int i = 0; i < 300; ++i) {
    const auto at = static_cast<std::streamoff>(i < 60 ? file_bytes - 5 - i : random.below(file_bytes - 4));
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&] {
      char byte = 0;
      stream.seekg(at).get(byte);
      stream.seekp(at).put(static_cast<char>(byte ^ (1 << (i % 8)))).flush();
    };
    flip();
    EXPECT_THROW(whole_is_read(), Error) << "byte " << at;
    flip();
  }
  whole_is_read();
  EXPECT_THROW(static_cast<void>(ChunkFile::open(folder.chunks, key, bytes.size() - 1)), Error);
  fs::create_directories(folder.chunks.file_of(key_of(2)).parent_path());
  fs::copy_file(path, folder.chunks.file_of(key_of(2)));
  EXPECT_THROW(static_cast<void>(ChunkFile::open(folder.chunks, key_of(2), bytes.size())), Error) << "another chunk's";
  EXPECT_FALSE(ChunkFile::open(folder.chunks, key_of(3), 1));
}

TEST_P(ChunkFileOf, an_empty_chunk_is_a_file_too) {
  const Folder folder(secret());
  folder.chunks.write(key_of(1), {});
  const auto file = ChunkFile::open(folder.chunks, key_of(1), 0);
  ASSERT_TRUE(file);
  file->read(0, {});
  EXPECT_EQ(folder.chunks.usage().chunks, 1U);
}

TEST(ChunkFile, an_encrypted_one_shows_nothing_and_is_another_each_time) {
  const Folder folder(some_secret(1));
  const Bytes zeros(200'000);
  folder.chunks.write(key_of(1), zeros);
  const fs::path path = folder.chunks.file_of(key_of(1));
  const Bytes first = read_file(path.string(), 1 << 20);
  const Bytes run(16);
  EXPECT_EQ(std::ranges::search(first, run).size(), 0U) << "what was zeros";
  EXPECT_EQ(std::ranges::search(first, key_of(1).bytes).size(), 0U) << "which chunk it is";
  EXPECT_EQ(path.string().find(key_of(1).hex()), std::string::npos);
  folder.chunks.write(key_of(1), zeros);
  const Bytes second = read_file(path.string(), 1 << 20);
  EXPECT_FALSE(std::ranges::equal(std::span(first).first(64), std::span(second).first(64))) << "a key used twice";
  const ChunkFolder others(folder.chunks.root(), some_secret(2));
  EXPECT_FALSE(ChunkFile::open(others, key_of(1), zeros.size())) << "with another secret it is not even found";
  fs::create_directories(others.file_of(key_of(1)).parent_path());
  fs::copy_file(path, others.file_of(key_of(1)));
  EXPECT_THROW(static_cast<void>(ChunkFile::open(others, key_of(1), zeros.size())), Error);
}

TEST(BlockCipher, is_AES_256_GCM_and_each_block_has_its_place) {
  // Test case 14 of McGrew, Viega: "The Galois/Counter Mode of Operation", 2004: all zeros.
  BlockCipher cipher{SecretKey()};
  Bytes block(16);
  const BlockTag tag = cipher.seal(0, block);
  EXPECT_EQ(hex_of(block), "cea7403d4d606b6e074ec5d3baf39d18");
  EXPECT_EQ(hex_of(tag), "d0d1c8a799996bf0265b98b5d48ab919");
  Bytes moved = block;
  EXPECT_FALSE(cipher.open(1, moved, tag));
  EXPECT_EQ(moved, Bytes(16)) << "nothing of it is handed out";
  EXPECT_TRUE(cipher.open(0, block, tag));
  EXPECT_EQ(block, Bytes(16));
}

/// How many files of `folder` this process has open.
TEST(Reading, bytes_are_handed_on_in_order_through_a_small_buffer) {
  const std::uint64_t first = 70'000;
  Bytes all(first + 700'000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>((i * 2654435761U) >> 7U);
  for (const std::size_t buffer_bytes : {std::size_t{1'000}, Reading::kPieceBytes + 1, all.size()}) {
    Bytes taken;
    Bytes buffer(buffer_bytes);
    const WaitingReader reader{
        .still_waiting = [] {},
        .arrived = [&](std::span<const std::byte> bytes) { taken.insert(taken.end(), bytes.begin(), bytes.end()); }};
    Reading reading(first, all.size() - first, buffer, reader);
    while (reading.left_bytes() > 0) {
      const auto piece = reading.next();
      ASSERT_GT(piece.size(), 0U);
      std::ranges::copy(std::span(all).subspan(reading.offset_bytes(), piece.size()), piece.begin());
      reading.arrived(piece);
    }
    EXPECT_TRUE(std::ranges::equal(taken, std::span(all).subspan(first)));
  }
}

TEST(Reading, a_reader_that_is_gone_is_no_fault_of_the_source) {
  const auto lost = [] { throw Error(ErrorCode::kPeerLost, "it closed the connection"); };
  const WaitingReader reader{.still_waiting = lost, .arrived = [&](std::span<const std::byte>) { lost(); }};
  Bytes buffer(100);
  Reading reading(0, 100, buffer, reader);
  EXPECT_THROW(reading.still_waiting(), ReaderGone);
  EXPECT_THROW(reading.arrived(reading.next()), ReaderGone);
  EXPECT_EQ(reading.left_bytes(), 100U);
}

std::size_t open_files_of(const ChunkFolder& folder) {
  std::size_t count = 0;
  for (const fs::directory_entry& fd : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    if (fs::read_symlink(fd.path(), closed).string().starts_with((folder.root() / "chunks").string())) ++count;
  }
  return count;
}

TEST(ChunkFiles, those_used_last_stay_open_and_no_more_than_the_limit) {
  // Opening a chunk and reading its footer for each small read cost more than the read.
  const Folder folder;
  ChunkFiles files(folder.chunks, 3);
  const Bytes bytes = random_bytes(100'000);
  for (std::uint64_t i = 0; i < 5; ++i) folder.chunks.write(key_of(i), bytes);
  Bytes part(1'000);
  for (std::uint64_t i = 0; i < 5; ++i) {
    for (const std::uint64_t from : {70'000U, 0U, 65'000U}) {
      EXPECT_TRUE(files.read(key_of(i), bytes.size(), from, part));
      EXPECT_TRUE(std::ranges::equal(part, std::span(bytes).subspan(from, part.size())));
    }
    EXPECT_EQ(open_files_of(folder.chunks), std::min<std::uint64_t>(i + 1, 3));
  }
  EXPECT_FALSE(files.read(key_of(9), bytes.size(), 0, part));
}

TEST(ChunkFiles, an_open_chunk_that_is_damaged_removed_or_replaced_is_read_as_it_is_now) {
  const Folder folder;
  ChunkFiles files(folder.chunks);
  const Bytes before(100'000, std::byte{1});
  const Bytes after(100'000, std::byte{2});
  Bytes part(10);
  const auto read = [&] { return files.read(key_of(1), before.size(), 99'000, part); };
  folder.chunks.write(key_of(1), before);
  EXPECT_TRUE(read());
  folder.chunks.remove(key_of(1));
  EXPECT_FALSE(read());
  EXPECT_EQ(open_files_of(folder.chunks), 0U) << "it would keep its space on the disk";
  folder.chunks.write(key_of(1), before);
  EXPECT_TRUE(read());
  folder.chunks.write(key_of(1), after);
  EXPECT_TRUE(read());
  EXPECT_EQ(part.front(), std::byte{2});
  const fs::path path = folder.chunks.file_of(key_of(1));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(99'500).put('x');
  EXPECT_THROW(read(), Error);
  EXPECT_EQ(open_files_of(folder.chunks), 0U);
  fs::resize_file(path, 50'000);
  EXPECT_THROW(read(), Error);
  folder.chunks.write(key_of(1), after);
  EXPECT_TRUE(read());
}

TEST(ChunkFiles, many_threads_read_while_chunks_come_and_go) {
  const Folder folder;
  ChunkFiles files(folder.chunks, 2);
  const Bytes bytes = random_bytes(70'000);
  std::vector<std::thread> readers;
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !ends; ++i) {
      folder.chunks.write(key_of(i % 4), bytes);
      folder.chunks.remove(key_of((i + 2) % 4));
    }
  });
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    readers.emplace_back([&, thread] {
      Bytes part(5'000);
      for (std::uint64_t i = thread; i < 1'000; ++i) {
        if (!files.read(key_of(i % 4), bytes.size(), 65'000, part)) continue;
        EXPECT_TRUE(std::ranges::equal(part, std::span(bytes).subspan(65'000)));
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  ends = true;
  writer.join();
  EXPECT_LE(open_files_of(folder.chunks), 2U);
}

/// Counts, and lets threads wait for a count.
class Counter {
 public:
  /// The count with this one.
  int add() GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.notify_all();
    return ++count_;
  }
  void wait_for(int count) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int count_ GYRE_GUARDED_BY(mutex_) = 0;
};

TEST(Flights, a_chunk_is_fetched_once_for_all_who_wait) {
  const Catalog catalog = catalog_of({1'000});
  std::atomic<int> fetched{0};
  Counter waiting;
  Flights flights(
      8, 3'000,
      [&](const Piece&, std::span<std::byte>, const std::stop_token&) {
        waiting.wait_for(6);
        ++fetched;
      },
      [] { return Flights::Step{.is_last = true}; });
  std::vector<std::thread> readers;
  for (int i = 0; i < 6; ++i) {
    readers.emplace_back([&] {
      bool counted = false;
      const auto still_waiting = [&] {
        if (!std::exchange(counted, true)) waiting.add();
      };
      EXPECT_EQ(flights.demand(catalog.chunk(0, 0), still_waiting)->size(), 1'000U);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(fetched, 1);
}

TEST(Flights, memory_bounds_how_many_are_fetched_at_once) {
  const Catalog catalog = catalog_of(std::vector<std::uint64_t>(21, 1'000));
  std::atomic<int> under_way{0};
  std::atomic<int> most{0};
  Counter begun;
  Flights flights(
      8, 3'000,
      [&](const Piece& chunk, std::span<std::byte> into, const std::stop_token&) {
        const int now = ++under_way;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        const int number = begun.add();
        begun.wait_for((number + 2) / 3 * 3);  // Three at a time, that is all for which there is memory.
        std::ranges::fill(into, static_cast<std::byte>(chunk.entry));
        --under_way;
      },
      [] { return Flights::Step{.is_last = true}; });
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < 21; ++i) {
    readers.emplace_back(
        [&, i] { EXPECT_EQ(flights.demand(catalog.chunk(i, 0), [] {})->front(), static_cast<std::byte>(i)); });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(most, 3) << "of 3,000 bytes of memory";
}

TEST(Flights, a_failure_reaches_all_who_wait_and_the_next_one_tries_again) {
  const Catalog catalog = catalog_of({10});
  std::atomic<bool> fails{true};
  Flights flights(
      2, 1'000,
      [&](const Piece&, std::span<std::byte>, const std::stop_token&) {
        if (fails) throw Error(ErrorCode::kIo, "the source is away");
      },
      [] { return Flights::Step{.is_last = true}; });
  EXPECT_THROW(static_cast<void>(flights.demand(catalog.chunk(0, 0), [] {})), Error);
  fails = false;
  EXPECT_EQ(flights.demand(catalog.chunk(0, 0), [] {})->size(), 10U);
}

TEST(Flights, stopping_ends_waiters_and_what_is_fetched_ahead) {
  const Catalog catalog = catalog_of({10, 10});
  Counter fetching;
  Flights flights(
      1, 1'000,
      [&](const Piece&, std::span<std::byte>, const std::stop_token& stop) {
        Counter stopped;
        const std::stop_callback ends(stop, [&] { stopped.add(); });
        fetching.add();
        stopped.wait_for(1);
        throw Error(ErrorCode::kAborted, "stopped");
      },
      [&] { return Flights::Step{.chunk = catalog.chunk(1, 0), .is_last = true}; });
  std::thread waiter([&] { EXPECT_THROW(static_cast<void>(flights.demand(catalog.chunk(0, 0), [] {})), Error); });
  fetching.wait_for(1);
  EXPECT_FALSE(flights.ahead_is_done());
  flights.stop();
  waiter.join();
}

}  // namespace
}  // namespace gyre::store::node
