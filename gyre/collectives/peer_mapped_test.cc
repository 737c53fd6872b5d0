// Why: where ranks map each other's buffers nothing is copied, so the result must be the same bits as with copies,
// and where one of them offers none, or one that cannot be mapped, all must copy, together.
#include "gyre/collectives/peer_mapped.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "gyre/collectives/internal/test_support.h"
#include "gyre/net/segment.h"

namespace gyre::collectives {
namespace {

constexpr Reduction kSum{.type = DataType::kFloat32};
constexpr std::size_t kCount = 100'003;  // No multiple of anything.

/// A rank's buffer in a file of its own, filled with numbers of its own.
struct Buffer {
  std::shared_ptr<net::Segment> segment;
  std::span<std::byte> bytes;

  Buffer(int rank, int round, std::size_t count = kCount) : segment(net::Segment::create(count * sizeof(float))) {
    bytes = segment->bytes().first(count * sizeof(float));
    fill(rank, round);
  }

  void fill(int rank, int round) const {
    const Bytes values =
        testing::random_elements(DataType::kFloat32, bytes.size() / sizeof(float), testing::test_seed(),
                                 100 * static_cast<std::uint64_t>(round) + static_cast<std::uint64_t>(rank));
    std::memcpy(bytes.data(), values.data(), values.size());
  }
};

/// What the same numbers give through copies.
Bytes copied_sum(group::Lane& lane, int round, std::size_t count = kCount) {
  const Buffer buffer(lane.rank(), round, count);
  Bytes values(buffer.bytes.begin(), buffer.bytes.end());
  allreduce(lane, values, kSum);
  return values;
}

void expect_equal(std::span<const std::byte> result, const Bytes& expected) {
  EXPECT_TRUE(result.size() == expected.size() && std::memcmp(result.data(), expected.data(), result.size()) == 0);
}

class PeerMappingsTest : public ::testing::TestWithParam<int> {};

TEST_P(PeerMappingsTest, buffers_that_all_ranks_map_are_reduced_in_place_to_the_same_bits) {
  testing::run_ranks(GetParam(), testing::one_host(GetParam()), [](group::Lane& lane) {
    PeerMappings memory;
    const Buffer buffer(lane.rank(), 0);
    for (int round = 0; round < 4; ++round) {
      buffer.fill(lane.rank(), round);
      allreduce(lane, buffer.bytes, kSum, memory, {1, buffer.segment->descriptor(), {1}});
      expect_equal(buffer.bytes, copied_sum(lane, round));
    }
    EXPECT_EQ(lane.counters().bytes_in_place.value(), 4 * kCount * sizeof(float));
  });
}

TEST_P(PeerMappingsTest, where_one_rank_offers_no_buffer_all_copy) {
  const int last = GetParam() - 1;
  testing::run_ranks(GetParam(), testing::one_host(GetParam()), [last](group::Lane& lane) {
    PeerMappings memory;
    const Buffer buffer(lane.rank(), 0);
    for (int round = 0; round < 6; ++round) {
      buffer.fill(lane.rank(), round);
      const bool offers = lane.rank() != last || round % 2 == 0;
      const PeerMappedBuffer own = offers ? PeerMappedBuffer{1, buffer.segment->descriptor(), {1}} : PeerMappedBuffer{};
      allreduce(lane, buffer.bytes, kSum, memory, own);
      expect_equal(buffer.bytes, copied_sum(lane, round));
    }
    EXPECT_EQ(lane.counters().bytes_in_place.value(), 3 * kCount * sizeof(float));
  });
}

TEST_P(PeerMappingsTest, a_file_that_is_not_the_buffer_is_never_written_and_all_copy_from_then_on) {
  testing::run_ranks(GetParam(), testing::one_host(GetParam()), [](group::Lane& lane) {
    PeerMappings memory;
    const Buffer buffer(lane.rank(), 0);
    const Buffer other(lane.rank(), 77);  // Memory without a name, and as large, but not the buffer.
    const Bytes before(other.bytes.begin(), other.bytes.end());
    for (int round = 0; round < 4; ++round) {
      buffer.fill(lane.rank(), round);
      const auto serial = static_cast<std::uint32_t>(round + 1);
      const int descriptor =
          lane.rank() == 0 && round == 1 ? other.segment->descriptor() : buffer.segment->descriptor();
      allreduce(lane, buffer.bytes, kSum, memory, {serial, descriptor, {serial}});
      expect_equal(buffer.bytes, copied_sum(lane, round));
    }
    expect_equal(other.bytes, before);
    EXPECT_EQ(lane.counters().bytes_in_place.value(), kCount * sizeof(float));
  });
}

/// Files that a number could name by accident.
class WrongFiles {
 public:
  explicit WrongFiles(int rank)
      : small_(rank, 0, 16),
        path_(std::filesystem::temp_directory_path() /
              ("gyre-data-" + std::to_string(::getpid()) + std::to_string(rank))),
        data_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
        named_(::open(shared_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
        read_only_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) {
    for (const UniqueFd* file : {&data_, &named_}) EXPECT_EQ(::ftruncate(file->get(), 4 * kCount), 0);
  }
  ~WrongFiles() {
    ::unlink(path_.c_str());
    ::unlink(shared_path().c_str());
  }
  WrongFiles(const WrongFiles&) = delete;
  WrongFiles& operator=(const WrongFiles&) = delete;

  std::vector<int> descriptors() const {
    return {small_.segment->descriptor(), data_.get(), named_.get(), read_only_.get(), -1, 1'000'000};
  }
  bool untouched() const {
    Bytes bytes(4 * kCount);
    for (const UniqueFd* file : {&data_, &named_}) {
      if (::pread(file->get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return false;
      if (std::ranges::any_of(bytes, [](std::byte value) { return value != std::byte{}; })) return false;
    }
    return true;
  }

 private:
  std::string shared_path() const { return "/dev/shm/" + path_.filename().string(); }

  Buffer small_;
  std::filesystem::path path_;
  UniqueFd data_;
  UniqueFd named_;
  UniqueFd read_only_;
};

TEST_P(PeerMappingsTest, a_number_that_is_no_memory_of_ours_is_not_offered_and_the_next_one_is) {
  testing::run_ranks(GetParam(), testing::one_host(GetParam()), [](group::Lane& lane) {
    PeerMappings memory;
    const Buffer buffer(lane.rank(), 0);
    const WrongFiles wrong(lane.rank());
    std::uint32_t serial = 0;
    int round = 0;
    for (const int descriptor : wrong.descriptors()) {
      for (const int offered : {descriptor, buffer.segment->descriptor()}) {
        ++serial;
        buffer.fill(lane.rank(), ++round);
        allreduce(lane, buffer.bytes, kSum, memory,
                  {serial, lane.rank() == 0 ? offered : buffer.segment->descriptor(), {serial}});
        expect_equal(buffer.bytes, copied_sum(lane, round));
      }
    }
    EXPECT_TRUE(wrong.untouched());
    EXPECT_EQ(lane.counters().bytes_in_place.value(), wrong.descriptors().size() * kCount * sizeof(float));
  });
}

TEST_P(PeerMappingsTest, more_buffers_than_are_remembered_come_and_go) {
  constexpr int kBuffers = 40;
  testing::run_ranks(GetParam(), testing::one_host(GetParam()), [](group::Lane& lane) {
    PeerMappings memory;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int i = 0; i < kBuffers; ++i) buffers.push_back(std::make_unique<Buffer>(lane.rank(), i));
    std::vector<std::uint32_t> alive;
    for (int turn = 0; turn < 2; ++turn) {
      for (int i = 0; i < kBuffers; ++i) {
        const Buffer& buffer = *buffers[static_cast<std::size_t>(i)];
        buffer.fill(lane.rank(), i);
        const auto serial = static_cast<std::uint32_t>(i + 1);
        if (i % 3 != lane.rank()) alive.push_back(serial);  // Ranks differ about what may come again.
        allreduce(lane, buffer.bytes, kSum, memory, {serial, buffer.segment->descriptor(), alive});
        if (i % 8 == 0) expect_equal(buffer.bytes, copied_sum(lane, i));
      }
    }
    EXPECT_EQ(lane.counters().bytes_in_place.value(), 2 * kBuffers * kCount * sizeof(float));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeerMappingsTest, ::testing::Values(2, 3, 4));

TEST(PeerMappingsTopologyTest,
     hosts_of_several_ranks_reduce_in_place_where_all_ranks_offer_and_copy_where_one_does_not) {
  for (const testing::Arrangement& arrangement : testing::host_arrangements(4)) {
    SCOPED_TRACE(arrangement.name);
    testing::run_ranks(4, arrangement, [](group::Lane& lane) {
      PeerMappings memory;
      const Buffer buffer(lane.rank(), 0);
      std::size_t in_place = 0;
      const bool ranks_meet = lane.topology().hosts().size() < static_cast<std::size_t>(lane.size());
      const std::vector<int>& local_ranks = lane.topology().local_ranks();
      for (int round = 0; round < 6; ++round) {
        buffer.fill(lane.rank(), round);
        const int without = round % 2 == 0 ? -1 : round / 2;  // Another rank each time; its host copies.
        allreduce(lane, buffer.bytes, kSum, memory,
                  lane.rank() == without ? PeerMappedBuffer{} : PeerMappedBuffer{1, buffer.segment->descriptor(), {1}});
        expect_equal(buffer.bytes, copied_sum(lane, round));
        const bool all_offer = std::ranges::find(local_ranks, without) == local_ranks.end();
        if (ranks_meet && all_offer) in_place += buffer.bytes.size();
      }
      EXPECT_EQ(lane.counters().bytes_in_place.value(), in_place);
    });
  }
}

}  // namespace
}  // namespace gyre::collectives
