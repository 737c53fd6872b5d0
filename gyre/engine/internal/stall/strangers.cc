#include "gyre/engine/internal/stall/strangers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/base/process_stat.h"
#include "gyre/base/thread.h"
#include "gyre/engine/internal/stall/rank_state.h"

namespace gyre::engine::internal {

namespace {

/// Of the small files of /proc; maps has a line of about 100 bytes per mapping.
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
/// Idle threads of pools use a few kilobytes; a larger stack is one of a thread that does something else.
constexpr std::size_t kMostStackBytes = std::size_t{1} << 20;
/// A thread that is on its way into its loop, or out of the process, gets this much time for it, as does one of a pool
/// that has just lost its processor.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLastPause = std::chrono::milliseconds(16);
/// The longest call of x86-64.
constexpr std::size_t kLongestCall = 7;

/// A kind of pool: the files that its code is in, and the names that its threads have; empty: any.
struct Pool {
  std::string_view thread_name;
  std::vector<std::string_view> files;
  /// The function that the thread was started with calls futex(2) by itself, and is no std::thread's.
  bool bare_wait = false;
};

/// A thread of these is given work only by a thread that waits for its end. Not here: pools whose threads call back
/// into programs by themselves, such as those of torch's process groups and RPC, and of Arrow.
const std::vector<Pool>& pools() {
  static const std::vector<Pool> known = {
      {"", {"libgomp"}},
      {"", {"libiomp5", "libomp"}},
      {"", {"libscipy_openblas", "libopenblas"}},
      {"pt_autograd", {"libtorch", "libc10"}},
      {"pt_tcpstore", {"libtorch", "libc10"}},
      {"", {"libtorch_cpu"}, true},  // pthreadpool's, a part of it.
      {"", {"libtensorflow"}},
      {"cuda", {"libcuda.so"}},  // The driver's, for its events; Gyre's C++ programs have none.
  };
  return known;
}

constexpr std::array<std::string_view, 6> kSystemFiles = {"libc.so",   "libc-2",    "libpthread",
                                                          "ld-linux-", "libstdc++", "[vdso]"};

std::optional<std::string> read_text(const std::string& path) {
  try {
    return std::string(as_text(read_file(path, kMostBytes)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Also with "0x" before it.
std::optional<std::uintptr_t> number_in(std::string_view text, int base) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  std::uintptr_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Ours, by number; nothing where /proc does not say.
std::optional<std::vector<pid_t>> threads_of_process() {
  if (!proc_has_our_numbers()) return std::nullopt;
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/task", error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto number = number_in(entry->path().filename().string(), 10)) {
      threads.push_back(static_cast<pid_t>(*number));
    }
  }
  if (error || threads.empty()) return std::nullopt;
  return threads;
}

struct Memory {
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  std::vector<CodeRange> code;
  std::vector<Range> data;
};

Memory read_memory_map() {
  Memory memory;
  const auto maps = read_text("/proc/self/maps");
  if (!maps) return memory;
  for (const std::string& line : split(*maps, '\n')) {
    // begin-end rights offset device inode   path
    const std::size_t dash = line.find('-');
    const std::size_t space = line.find(' ');
    if (dash == std::string::npos || space == std::string::npos || space < dash) continue;
    const auto begin = number_in(std::string_view(line).substr(0, dash), 16);
    const auto end = number_in(std::string_view(line).substr(dash + 1, space - dash - 1), 16);
    const std::string_view rights = std::string_view(line).substr(space + 1, 4);
    if (!begin || !end || rights.size() != 4) continue;
    if (rights[2] == 'x') {
      const std::size_t name = line.find_last_of("/ ");
      memory.code.push_back({*begin, *end, line.substr(name + 1)});
    } else if (rights[1] == 'w') {
      memory.data.push_back({*begin, *end});
    }
  }
  return memory;
}

/// Our own memory through a descriptor, so that pages which another thread unmaps meanwhile are an error and no signal.
class OwnMemory {
 public:
  OwnMemory() : file_(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)) {}

  bool read(std::uintptr_t address, std::span<std::byte> into) const {
    return file_ && ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(address)) ==
                        static_cast<ssize_t>(into.size());
  }

 private:
  const UniqueFd file_;
};

struct Place {
  std::uintptr_t stack = 0;
  std::uintptr_t instruction = 0;
  bool waits_in_futex = false;

  friend bool operator==(const Place&, const Place&) = default;
};

/// Where a thread sleeps inside a system call; nothing when it runs.
std::optional<Place> place_of(pid_t thread) {
  const auto text = read_text(fmt::format("/proc/self/task/{}/syscall", thread));
  if (!text) return std::nullopt;
  // The call's number and its six arguments, the stack pointer and the program counter; "running"; or without arguments
  // outside of a call.
  constexpr std::size_t kFields = 9;
  const std::vector<std::string> fields = split(text->substr(0, text->find('\n')), ' ');
  if (fields.size() != kFields) return std::nullopt;
  const auto stack = number_in(fields[kFields - 2], 16);
  const auto instruction = number_in(fields[kFields - 1], 16);
  if (!stack || !instruction) return std::nullopt;
  return Place{*stack, *instruction, number_in(fields[0], 10) == std::uintptr_t{SYS_futex}};
}

/// Nothing when the thread has ended.
std::optional<std::string> name_of(pid_t thread) {
  auto name = read_text(fmt::format("/proc/self/task/{}/comm", thread));
  while (name && name->ends_with('\n')) name->pop_back();
  return name;
}

std::optional<SleepingThread> look_at(pid_t thread, const Memory& memory, const OwnMemory& own) {
  const auto place = place_of(thread);
  if (!place) return std::nullopt;
  const auto pages = std::ranges::find_if(
      memory.data, [&](const auto& range) { return place->stack >= range.begin && place->stack < range.end; });
  if (pages == memory.data.end() || pages->end - place->stack > kMostStackBytes) return std::nullopt;
  SleepingThread found{name_of(thread).value_or(""), place->waits_in_futex, place->instruction, {}};
  found.stack.resize((pages->end - place->stack) / sizeof(std::uintptr_t));
  if (!own.read(place->stack, std::as_writable_bytes(std::span(found.stack)))) return std::nullopt;
  // Otherwise it may have moved while its stack was read.
  return place_of(thread) == place ? std::optional(std::move(found)) : std::nullopt;
}

bool starts_with_any(std::string_view text, std::span<const std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

/// Without what processors keep in the upper bits of addresses.
std::uintptr_t address_in(std::uintptr_t word) {
  constexpr std::uintptr_t kAddressBits = (std::uintptr_t{1} << 48) - 1;
  return word & kAddressBits;
}

/// Tells idle threads of pools from others.
class PoolFinder {
 public:
  bool is_idle(pid_t thread) {
    if (!memory_) memory_ = read_memory_map();
    const auto asleep = look_at(thread, *memory_, own_);
    if (!asleep) return false;
    return is_idle_in_pool(*asleep, memory_->code, [&](std::uintptr_t address) {
      std::array<std::byte, kLongestCall> before{};
      return !own_.read(address - before.size(), before) || may_end_with_call(before);
    });
  }

 private:
  std::optional<Memory> memory_;  ///< Read when it is needed.
  const OwnMemory own_;
};

struct Stranger {
  std::string description;
  bool may_vanish = false;  ///< Nobody knows it: it may be one of ours, or a pool's, that is just starting or ending.
};

/// Those of `threads` that have not ended meanwhile: who has brings nothing any more.
std::vector<Stranger> strangers_among(const std::vector<pid_t>& threads, const std::vector<pid_t>& known,
                                      const std::vector<ProgramThread>& program_threads) {
  std::vector<Stranger> strangers;
  PoolFinder pools;
  for (const pid_t thread : threads) {
    if (std::ranges::find(known, thread) != known.end() || is_own_thread(thread)) continue;
    const auto described = std::ranges::find(program_threads, thread, &ProgramThread::number);
    const bool is_described = described != program_threads.end();
    if ((is_described && described->serves_library) || pools.is_idle(thread)) continue;
    const auto name = name_of(thread);
    if (!name) continue;
    strangers.push_back(
        {is_described ? "thread " + described->description : fmt::format("thread {} ('{}')", thread, *name),
         !is_described});
  }
  return strangers;
}

}  // namespace

bool is_idle_in_pool(pid_t thread) { return proc_has_our_numbers() && PoolFinder().is_idle(thread); }

bool may_end_with_call(std::span<const std::byte> code) {
#if defined(__x86_64__)
  const auto before = [&](std::size_t distance) { return std::to_integer<unsigned>(code[code.size() - distance]); };
  constexpr std::size_t kDirectCall = 5;
  if (code.size() >= kDirectCall && before(kDirectCall) == 0xE8) return true;
  for (std::size_t distance = 2; distance <= std::min(code.size(), kLongestCall); ++distance) {
    const bool is_indirect = before(distance) == 0xFF && ((before(distance - 1) >> 3) & 7) == 2;
    if (is_indirect) return true;
  }
  return false;
#else
  static_cast<void>(code);
  return true;
#endif
}

bool is_idle_in_pool(const SleepingThread& thread, std::span<const CodeRange> code,
                     const std::function<bool(std::uintptr_t)>& is_call_before) {
  std::vector<std::string_view> files;
  const auto note = [&](std::uintptr_t address, bool is_certain) {
    const auto range =
        std::ranges::find_if(code, [&](const CodeRange& one) { return address >= one.begin && address < one.end; });
    if (range == code.end() || (!is_certain && !is_call_before(address))) return;
    files.push_back(range->file);
  };
  note(thread.instruction, true);
  for (const std::uintptr_t word : thread.stack) note(address_in(word), false);
  return std::ranges::any_of(pools(), [&](const Pool& pool) {
    if (!thread.name.starts_with(pool.thread_name)) return false;
    std::ptrdiff_t in_pool = 0;
    bool in_cxx = false;
    for (const std::string_view file : files) {
      const bool is_pools = starts_with_any(file, pool.files);
      in_pool += is_pools ? 1 : 0;
      in_cxx |= file.starts_with("libstdc++");
      if (!is_pools && !starts_with_any(file, kSystemFiles)) return false;
    }
    if (!pool.bare_wait) return in_pool > 0;
    const bool direct = files.size() > 1 && starts_with_any(files[1], pool.files);
    return thread.waits_in_futex && in_pool == 1 && !in_cxx && direct;
  });
}

std::vector<std::string> find_strangers(const std::vector<pid_t>& known,
                                        const std::vector<ProgramThread>& program_threads) {
  std::vector<std::string> strangers;
  for (const ProgramThread& thread : program_threads) {
    if (thread.number == 0 && !thread.serves_library) strangers.push_back(thread.description);
  }
  std::vector<Stranger> found;
  for (auto pause = kFirstPause;; pause *= 4) {
    const auto threads = threads_of_process();
    if (!threads) return {"threads that Gyre cannot see, because /proc does not show them"};
    found = strangers_among(*threads, known, program_threads);
    if (pause > kLastPause || std::ranges::none_of(found, &Stranger::may_vanish)) break;
    std::this_thread::sleep_for(pause);
  }
  for (Stranger& one : found) strangers.push_back(std::move(one.description));
  if (strangers.size() > RankState::kMostStrangers) {
    const std::size_t more = strangers.size() - RankState::kMostStrangers + 1;
    strangers.resize(RankState::kMostStrangers - 1);
    strangers.push_back(fmt::format("{} more", more));
  }
  return strangers;
}

}  // namespace gyre::engine::internal
