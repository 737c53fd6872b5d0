// Segments are the memory that gradients live in: shared, sealed, gone with their last user, and never a SIGBUS.
#include "gyre/net/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "gyre/base/error.h"

namespace gyre::net {
namespace {

UniqueFd copy_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

ErrorCode code_of_mapping(UniqueFd descriptor, std::size_t size_bytes) {
  try {
    Segment::map(std::move(descriptor), size_bytes);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(Segment, two_mappings_see_the_same_zeroed_bytes) {
  const auto ours = Segment::create(3'000'000);
  ASSERT_EQ(ours->bytes().size(), 3'000'000U);
  EXPECT_TRUE(std::ranges::all_of(ours->bytes(), [](std::byte value) { return value == std::byte{0}; }));
  auto theirs = Segment::map(copy_of(ours->descriptor()), 3'000'000);
  EXPECT_NE(theirs->bytes().data(), ours->bytes().data());
  theirs->bytes().back() = std::byte{42};
  theirs.reset();
  EXPECT_EQ(ours->bytes().back(), std::byte{42});
}

TEST(Segment, its_size_is_sealed) {
  const auto segment = Segment::create(8192);
  EXPECT_NE(::ftruncate(segment->descriptor(), 4096), 0);
  EXPECT_NE(::ftruncate(segment->descriptor(), 16384), 0);
}

TEST(Segment, a_received_file_that_is_too_small_or_may_shrink_is_refused) {
  const auto segment = Segment::create(8192);
  EXPECT_EQ(code_of_mapping(copy_of(segment->descriptor()), 8193), ErrorCode::kProtocol);
  EXPECT_EQ(code_of_mapping(copy_of(segment->descriptor()), 0), ErrorCode::kProtocol);
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(code_of_mapping(std::move(unsealed), 8192), ErrorCode::kProtocol);
}

/// Makes the kernel refuse files of more than `most_bytes`, memory files included. Should the code under test fail,
/// the machine that runs this must not run out of memory.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t most_bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit lowered{most_bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &lowered), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

TEST(Segment, a_request_that_the_kernel_refuses_is_an_error_with_its_reason) {
  const FileSizeLimit limit(1 << 20);
  try {
    Segment::create(2 << 20);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("2 MB"), std::string::npos) << error.what();
  }
}

TEST(Segment, more_memory_than_there_is_is_an_error_here_and_not_a_signal_later) {
  const FileSizeLimit limit(1 << 20);
  try {
    Segment::create(std::size_t{1} << 46);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("available"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyre::net
