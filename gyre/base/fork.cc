#include "gyre/base/fork.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/pthread_lock.h"

namespace gyre {

namespace {

/// Two open files are the same if these are.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const Identity&, const Identity&) = default;
};

/// All zeros: none. Async-signal-safe.
Identity identity_of(int descriptor) {
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

std::uint64_t number_of(const Identity& identity) {
  if (identity == Identity{}) return 0;
  return (std::uint64_t{identity.device} << 40) ^ std::uint64_t{identity.inode};
}

/// Descriptors above are not closed; few systems allow that many. The array is only address space until it is used.
constexpr int kMostDescriptors = 1 << 20;
std::array<std::atomic<std::uint64_t>, kMostDescriptors> g_identities;  // By descriptor; 0: none.
std::atomic<int> g_descriptors_end{0};

}  // namespace

struct PrivateInForks::Note {
  std::span<std::byte> pages;
  int descriptor;
  Identity file;
  off_t offset;
  bool while_open = false;  // See PrivateInForks::while_open().
  bool is_private = false;  // In this process, a fork.
  Note* before = nullptr;
  Note* after = nullptr;
};

namespace {

using Note = PrivateInForks::Note;

// Facts about the process, not state of a runtime. The mutex is held by a thread that forks, so that the list is whole
// in the fork, whose only thread that one becomes.
pthread_mutex_t g_notes_mutex = PTHREAD_MUTEX_INITIALIZER;
Note* g_first = nullptr;

thread_local int t_keeping = 0;

void link(Note& note) {
  note.after = g_first;
  if (g_first != nullptr) g_first->before = &note;
  g_first = &note;
}

void unlink(Note& note) {
  (note.before != nullptr ? note.before->after : g_first) = note.after;
  if (note.after != nullptr) note.after->before = note.before;
}

/// Whether the note's descriptor is still the file. Async-signal-safe, as all below.
bool has_file(const Note& note) { return note.file != Identity{} && identity_of(note.descriptor) == note.file; }

/// The file's own pages, privately.
bool map_privately(const Note& note) {
  constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  return ::mmap(note.pages.data(), note.pages.size(), PROT_READ | PROT_WRITE, kFlags, note.descriptor, note.offset) !=
         MAP_FAILED;
}

bool copy_pages(const Note& note) {
  const std::size_t size = note.pages.size();
  void* copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, note.pages.data(), size);
  return ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, note.pages.data()) != MAP_FAILED;
}

void before_fork() { ::pthread_mutex_lock(&g_notes_mutex); }

void after_fork_in_parent() { ::pthread_mutex_unlock(&g_notes_mutex); }

void after_fork_in_child() {
  const int saved_errno = errno;
  if (t_keeping == 0) {
    for (Note* note = g_first; note != nullptr; note = note->after) {
      if (note->is_private) continue;
      note->is_private = true;
      const bool is_open = has_file(*note);
      if (note->while_open && !is_open) continue;  // The pages are gone, and others may be in their place.
      if ((is_open && map_privately(*note)) || copy_pages(*note)) continue;
      // Without memory for its own page tables the fork may still read, but never write to the parent's pages.
      if (::mprotect(note->pages.data(), note->pages.size(), PROT_READ) != 0) ::abort();
    }
    const int end = g_descriptors_end.load(std::memory_order_relaxed);
    for (int descriptor = 0; descriptor < end; ++descriptor) {
      const std::uint64_t noted =
          g_identities[static_cast<std::size_t>(descriptor)].exchange(0, std::memory_order_relaxed);
      if (noted != 0 && noted == number_of(identity_of(descriptor))) ::close(descriptor);
    }
  }
  errno = saved_errno;
  ::pthread_mutex_unlock(&g_notes_mutex);
}

}  // namespace

void let_go_in_forks() {
  static const int kFailure = ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  if (kFailure != 0) throw system_error("pthread_atfork", kFailure);
}

void close_in_forks(int descriptor) {
  if (descriptor < 0 || descriptor >= kMostDescriptors) return;
  g_identities[static_cast<std::size_t>(descriptor)].store(number_of(identity_of(descriptor)),
                                                           std::memory_order_relaxed);
  int end = g_descriptors_end.load(std::memory_order_relaxed);
  while (end <= descriptor &&
         !g_descriptors_end.compare_exchange_weak(end, descriptor + 1, std::memory_order_relaxed)) {
  }
}

KeepAllInFork::KeepAllInFork() { ++t_keeping; }
KeepAllInFork::~KeepAllInFork() { --t_keeping; }

PrivateInForks::PrivateInForks(std::span<std::byte> pages, int descriptor, off_t offset)
    : note_(new Note{pages, descriptor, identity_of(descriptor), offset}) {
  const PthreadLock lock(g_notes_mutex);
  link(*note_);
}

PrivateInForks PrivateInForks::while_open(std::span<std::byte> pages, int descriptor) {
  PrivateInForks noted;
  noted.note_ = new Note{.pages = pages, .descriptor = descriptor, .file = identity_of(descriptor), .offset = 0};
  noted.note_->while_open = true;
  const PthreadLock lock(g_notes_mutex);
  link(*noted.note_);
  return noted;
}

PrivateInForks PrivateInForks::alias(std::span<std::byte> alias, std::span<const std::byte> pages) {
  int descriptor = -1;
  off_t offset = 0;
  {
    const PthreadLock lock(g_notes_mutex);
    for (const Note* note = g_first; note != nullptr; note = note->after) {
      const bool lies_there =
          pages.data() >= note->pages.data() && pages.data() + pages.size() <= note->pages.data() + note->pages.size();
      if (!lies_there || note->is_private) continue;
      descriptor = note->descriptor;
      offset = note->offset + (pages.data() - note->pages.data());
      break;
    }
  }
  return {alias, descriptor, offset};
}

PrivateInForks::PrivateInForks(PrivateInForks&& other) noexcept : note_(std::exchange(other.note_, nullptr)) {}

PrivateInForks& PrivateInForks::operator=(PrivateInForks&& other) noexcept {
  if (this == &other) return *this;
  end();
  note_ = std::exchange(other.note_, nullptr);
  return *this;
}

void PrivateInForks::end() {
  if (note_ == nullptr) return;
  {
    const PthreadLock lock(g_notes_mutex);
    unlink(*note_);
  }
  delete std::exchange(note_, nullptr);
}

bool PrivateInForks::end_if(const std::function<bool()>& replace) {
  if (note_ == nullptr) return replace();
  {
    const PthreadLock lock(g_notes_mutex);
    if (!replace()) return false;
    unlink(*note_);
  }
  delete std::exchange(note_, nullptr);
  return true;
}

}  // namespace gyre
