// A fork holds everything that its parent has open and shares: unless it lets go, a dead rank seems alive, its port
// stays taken, and what the fork writes changes the parent's gradients.
#include "gyre/base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "gyre/base/file.h"
#include "gyre/base/random.h"

namespace gyre {
namespace {

constexpr std::size_t kPage = 4096;

/// Whether `holds` is true in a fork of this process.
bool true_in_a_fork(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

/// Pages of a memory file, filled with one value.
struct SharedPages {
  UniqueFd file{::memfd_create("fork_test", MFD_CLOEXEC)};
  std::span<std::byte> pages;
  PrivateInForks in_forks;

  SharedPages(std::size_t count, std::byte value) {
    const std::size_t size = count * kPage;
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    EXPECT_NE(address, MAP_FAILED);
    pages = {static_cast<std::byte*>(address), size};
    std::ranges::fill(pages, value);
    in_forks = PrivateInForks(pages, file.get(), 0);
  }
  ~SharedPages() {
    in_forks.end();
    ::munmap(pages.data(), pages.size());
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
};

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [&](std::byte one) { return one == value; });
}

bool overwrites(std::span<std::byte> bytes, std::byte before) {
  if (!all_are(bytes, before)) return false;
  std::ranges::fill(bytes, std::byte{0xEE});
  return all_are(bytes, std::byte{0xEE});
}

TEST(ForkTest, a_fork_reads_shared_memory_and_writes_to_its_own) {
  let_go_in_forks();
  SharedPages shared(3, std::byte{7});
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(shared.pages, std::byte{7}); }));
  EXPECT_TRUE(all_are(shared.pages, std::byte{7}));
  // Forks of forks too, which do not have the descriptor.
  EXPECT_TRUE(true_in_a_fork([&] {
    return true_in_a_fork([&] { return overwrites(shared.pages, std::byte{7}); }) &&
           overwrites(shared.pages, std::byte{7});
  }));
  EXPECT_TRUE(all_are(shared.pages, std::byte{7}));
}

TEST(ForkTest, an_alias_is_private_with_or_without_the_file_of_its_pages) {
  let_go_in_forks();
  auto shared = std::make_unique<SharedPages>(4, std::byte{7});
  std::fill_n(shared->pages.begin() + kPage, kPage, std::byte{8});
  void* address = ::mremap(shared->pages.data() + kPage, 0, kPage, MREMAP_MAYMOVE);
  ASSERT_NE(address, MAP_FAILED);
  const std::span<std::byte> pages(static_cast<std::byte*>(address), kPage);
  PrivateInForks alias = PrivateInForks::alias(pages, shared->pages.subspan(kPage, kPage));
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(pages, std::byte{8}); }));
  EXPECT_TRUE(all_are(pages, std::byte{8}));
  shared.reset();
  // Another file may have the number now.
  const UniqueFd other(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(pages, std::byte{8}); }));
  EXPECT_TRUE(all_are(pages, std::byte{8}));
  EXPECT_FALSE(alias.end_if([] { return false; }));
  EXPECT_TRUE(alias.end_if([] { return true; }));
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(pages, std::byte{8}); }));
  EXPECT_TRUE(all_are(pages, std::byte{0xEE})) << "it was shared again";
  ::munmap(pages.data(), pages.size());
}

TEST(ForkTest, a_fork_closes_what_was_noted_and_nothing_else) {
  let_go_in_forks();
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::vector<UniqueFd> kept;
  std::vector<UniqueFd> noted;
  for (int i = 0; i < 200; ++i) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::uint64_t choice = random.below(3);
    if (choice != 0) close_in_forks(socket.get());
    // The number of one that was noted and closed soon belongs to another.
    if (choice == 2) continue;
    (choice == 1 ? noted : kept).push_back(std::move(socket));
  }
  const auto as_expected = [&] {
    return std::ranges::all_of(kept, [](const UniqueFd& one) { return is_open(one.get()); }) &&
           std::ranges::none_of(noted, [](const UniqueFd& one) { return is_open(one.get()); });
  };
  EXPECT_TRUE(true_in_a_fork(as_expected));
  for (const UniqueFd& one : noted) EXPECT_TRUE(is_open(one.get()));
  {
    const KeepAllInFork keep;
    EXPECT_TRUE(true_in_a_fork([&] { return is_open(noted.front().get()); }));
  }
  EXPECT_TRUE(true_in_a_fork(as_expected));
}

TEST(ForkTest, a_peer_sees_the_end_of_a_process_whose_fork_lives) {
  let_go_in_forks();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  close_in_forks(there.get());
  int until_the_end[2];
  ASSERT_EQ(::pipe2(until_the_end, O_CLOEXEC), 0);
  const UniqueFd reading(until_the_end[0]);
  UniqueFd writing(until_the_end[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    writing.reset();
    std::byte nothing{};
    ::_exit(::read(reading.get(), &nothing, 1) == 0 ? 0 : 1);  // Until the parent says so.
  }
  there.reset();
  std::byte nothing{};
  EXPECT_EQ(::read(here.get(), &nothing, 1), 0);
  writing.reset();
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(ForkTest, forks_of_one_thread_see_whole_notes_while_others_make_them) {
  let_go_in_forks();
  std::atomic<bool> stop = false;
  std::thread maker([&] {
    while (!stop) {
      SharedPages one(1, std::byte{1});
      SharedPages two(2, std::byte{2});
    }
  });
  SharedPages shared(1, std::byte{7});
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(true_in_a_fork([&] { return overwrites(shared.pages, std::byte{7}); }));
  }
  stop = true;
  maker.join();
  EXPECT_TRUE(all_are(shared.pages, std::byte{7}));
}

TEST(PrivateInForksTest, pages_that_their_owner_has_closed_and_unmapped_are_left_alone) {
  UniqueFd file(::memfd_create("fork_test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* const address = ::mmap(nullptr, kPage, kAccess, MAP_SHARED, file.get(), 0);
  ASSERT_NE(address, MAP_FAILED);
  const std::span<std::byte> pages(static_cast<std::byte*>(address), kPage);
  const PrivateInForks note = PrivateInForks::while_open(pages, file.get());
  let_go_in_forks();
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(pages, std::byte{0}); }));
  EXPECT_TRUE(all_are(pages, std::byte{0})) << "it is private while it is open";
  file.reset();
  ::munmap(address, kPage);
  EXPECT_TRUE(true_in_a_fork([] { return true; })) << "nothing is there to be read";
  ASSERT_EQ(::mmap(address, kPage, kAccess, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), address);
  EXPECT_TRUE(true_in_a_fork([&] { return overwrites(pages, std::byte{0}); }));
  EXPECT_TRUE(all_are(pages, std::byte{0xEE})) << "what somebody else shares there stays shared";
  ::munmap(address, kPage);
}

}  // namespace
}  // namespace gyre
