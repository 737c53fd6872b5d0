#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/engine/options.h"

// The threads of a process that have never used Gyre. Most of them never will: pools of libraries, our own. A deadlock
// is proven only when that is certain of all of them (ADR 72).

namespace gyre::engine::internal {

/// The threads of this process, in words, that may still bring something: all but our own, those in `known`, those that
/// serve a library according to `program_threads`, and idle threads of the pools of libraries. At most
/// RankState::kMostStrangers, the last of which counts the others. Without /proc nothing is known: that is one, too.
std::vector<std::string> find_strangers(const std::vector<pid_t>& known,
                                        const std::vector<ProgramThread>& program_threads);

/// Whether a thread of this process, by its kernel number, is idle in a pool of a library, as far as /proc says.
bool is_idle_in_pool(pid_t thread);

/// Executable pages.
struct CodeRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string file;  ///< Without its folder; empty: of no file.
};

/// A thread asleep in the kernel.
struct SleepingThread {
  std::string name;                     ///< As pthread_setname_np(3).
  bool waits_in_futex = false;          ///< Not in another system call.
  std::uintptr_t instruction = 0;       ///< Where it sleeps,
  std::vector<std::uintptr_t> stack{};  ///< and all of its stack, from there to its beginning.
};

/// Whether a thread runs the loop of a library's pool, and waits there for another thread to give it work: all code
/// that its stack can return to is that library's or the C library's. `is_call_before` says whether the instruction
/// before an address may be a call; an address for which it is false is not one to return to. Pure.
bool is_idle_in_pool(const SleepingThread& thread, std::span<const CodeRange> code,
                     const std::function<bool(std::uintptr_t)>& is_call_before);

/// Whether these bytes, the last of which is followed by the address in question, may end with a call. On processors
/// whose calls we cannot tell apart: always.
bool may_end_with_call(std::span<const std::byte> code);

}  // namespace gyre::engine::internal
